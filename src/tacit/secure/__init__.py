"""Curators made of several servers that together know everything and separately know nothing.

    client ──► shares ──► servers compute on shares ──► shares ──► client puts its answer together
                             (or: a sum with noise inside is opened for the billboard)

| file            | what it is                                                            |
|-----------------|-----------------------------------------------------------------------|
| `fixed`         | real numbers as integers of a ring, with stated bounds                 |
| `stream`        | masks: AES-CTR keystreams from 16-byte seeds                           |
| `sharing`       | additive shares: all but one are seeds                                 |
| `kernels`       | products of integer matrices that wrap around                          |
| `links`         | messages between parties; in one process, or over TLS (`tls`)          |
| `job`           | one thing that servers do together: who uploads, computes, learns      |
| `engine`        | what servers can compute on shares                                     |
| `additive`      | … with a dealer: any P ≥ 2 servers, up to P − 1 of them may collude    |
| `replicated`    | … without: three servers, of which no two collude                      |
| `comparison`    | signs of shared numbers                                                |
| `assignment`    | the best one-to-one mapping, without looking                           |
| `weights`       | from similarities to weights that add up to one                        |
| `fedmtl`        | FedMTL's curator on shares                                             |
| `summing`       | a sum of contributions that is opened with noise inside                |

All parties are honest but curious: they follow the protocol, and try to learn from what they see.
docs/threat-model.md says who sees what.
"""
