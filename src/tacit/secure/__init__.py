"""Curators made of several servers that together know everything and separately know nothing.

    client ──► shares ──► servers compute on shares ──► shares ──► client puts its answer together
                             (or: a sum with noise inside is opened for the billboard)

| numbers         |                                                                       |
|-----------------|-----------------------------------------------------------------------|
| `fixed`         | real numbers as integers of a ring, with stated bounds                 |
| `stream`        | masks: AES-CTR keystreams from 16-byte seeds                           |
| `sharing`       | additive shares: all but one are seeds                                 |
| `kernels`       | products of integer matrices that wrap around                          |

| computing       |                                                                       |
|-----------------|-----------------------------------------------------------------------|
| `engine`        | what servers can compute on shares                                     |
| `additive`      | … with a dealer: any P ≥ 2 servers, up to P − 1 of them may collude    |
| `replicated`    | … without: three servers, of which no two collude                      |
| `comparison`    | signs, shifts and wider words of shared numbers                        |
| `assignment`    | the best one-to-one mapping, without looking                           |
| `weights`       | from similarities to weights that add up to one                        |

| jobs            |                                                                       |
|-----------------|-----------------------------------------------------------------------|
| `settings`      | `tacit.Secure`: what a user asks for                                   |
| `job`           | one thing that servers do together: who uploads, computes, learns      |
| `uploads`       | how clients' arrays reach servers as shares                            |
| `fedmtl`        | FedMTL's curator on shares                                             |
| `summing`       | a sum of contributions that is opened with noise inside                |
| `curator`       | the same as the billboard's channel asks for it                        |

| processes       |                                                                       |
|-----------------|-----------------------------------------------------------------------|
| `links`         | messages between parties, whatever carries them; inside one process    |
| `tls`, `channel`| messages between processes; `sealed`: TLS, many records at a time      |
| `certificates`  | who is who; `addresses`: who is where                                  |
| `daemon`        | a server as a process; `session`: one job there; `jobs`: kinds of jobs |
| `remote`        | the other side: coordinator and clients; `blame`: who failed first     |
| `local`         | servers on this machine; `process`: settings of a server's process    |

All parties are honest but curious: they follow the protocol, and try to learn from what they see.
docs/threat-model.md says who sees what.
"""
