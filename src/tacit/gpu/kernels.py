"""Kernels for many tasks at once on a GPU: convolutions, steps, lengths and sums.

`local.fused`, `local.descent` and `privacy.bounds` load them, say what they compute and have the
same in plain PyTorch. All tensors are contiguous and led by a task axis, where nothing else is
said; pixels are [task, image, row, column, channel] and filters [task, tap and channel, filter]. A
number in single precision travels as two of bfloat16, its leading half and the rest; a product of
two such numbers is three products, and what is left out is 2⁻¹⁶ of it. A program works for one
task: nothing that it adds up is anybody else's. Only `add_up` sums over tasks, for the channel.
"""

# Triton reads these functions as text: annotations mean what is known when it compiles.
# pyright: basic, reportMissingImports=false

import triton
import triton.language as tl


@triton.jit
def _halves(value):
    high = value.to(tl.bfloat16)
    return high, (value - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _plus(ah, al, bh, bl, total):
    """The sum so far and a matrix product."""
    total = tl.dot(al, bh, total)
    total = tl.dot(ah, bl, total)
    return tl.dot(ah, bh, total)


@triton.jit
def split_numbers(values, high, low, count, BLOCK: tl.constexpr):
    """Numbers as they lie in memory."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    h, rest = _halves(tl.load(values + i, mask=i < count))
    tl.store(high + i, h, mask=i < count)
    tl.store(low + i, rest, mask=i < count)


@triton.jit
def split_filters(
    values,
    high,
    low,
    apart,
    TAPS: tl.constexpr,
    C: tl.constexpr,
    F: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """From [filter, channel, tap], which tasks have `apart` from each other, to [tap, channel,
    filter]."""
    t = tl.program_id(1).to(tl.int64)
    BLOCKS: tl.constexpr = (F + BLOCK - 1) // BLOCK
    f = tl.program_id(0) % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    r = tl.program_id(0) // BLOCKS * BLOCK + tl.arange(0, BLOCK)
    ok = (f < F)[:, None] & (r < TAPS * C)[None, :]
    h, rest = _halves(tl.load(values + t * apart + f[:, None] * (TAPS * C) + r[None, :], mask=ok))
    to = t * (TAPS * C * F) + (r % TAPS * C + r // TAPS)[None, :] * F + f[:, None]
    tl.store(high + to, h, mask=ok)
    tl.store(low + to, rest, mask=ok)


@triton.jit
def convolve_few(
    x,
    w,
    bias,
    out,
    which,
    apart,
    B,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    F: tl.constexpr,
    POOL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Pixels made of few numbers, which stay in single precision; a window's four one by one.

    Filters are [filter, channel, tap], which tasks have `apart` from each other.
    """
    SIDE: tl.constexpr = 2 if POOL else 1
    PH: tl.constexpr = (H - KH + 1) // SIDE
    PW: tl.constexpr = (W - KW + 1) // SIDE
    ROW: tl.constexpr = KW * C
    BLOCKS: tl.constexpr = (F + BN - 1) // BN
    N = B * PH * PW
    t = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) // BLOCKS * BM + tl.arange(0, BM)
    f = tl.program_id(0) % BLOCKS * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    real = (k < KH * ROW)[:, None] & (f < F)[None, :]
    tap = k // ROW * KW + k % ROW // C
    filters = t * apart + (k % C * (KH * KW) + tap)[:, None] + f[None, :] * (C * KH * KW)
    wt = tl.load(w + filters, mask=real, other=0.0)
    first = (m // (PH * PW) * H + m // PW % PH * SIDE) * W + m % PW * SIDE
    shift = k // ROW * (W * C) + k % ROW
    at = x + t * (B * H * W * C) + (first * C)[:, None] + shift[None, :]
    seen = (m < N)[:, None] & (k < KH * ROW)[None, :]
    add = tl.load(bias + t * F + f, mask=f < F, other=0.0)[None, :]
    best = tl.dot(tl.load(at, mask=seen, other=0.0), wt, input_precision="tf32x3") + add
    to = t * (N * F) + m[:, None] * F + f[None, :]
    ok = (m < N)[:, None] & (f < F)[None, :]
    if POOL:
        place = tl.zeros((BM, BN), tl.int32)
        odd = best * 0.0  # what is not finite must not vanish behind a maximum
        for o in tl.static_range(1, 4):
            a = tl.load(at + (o // 2 * W + o % 2) * C, mask=seen, other=0.0)
            found = tl.dot(a, wt, input_precision="tf32x3") + add
            place = tl.where(found > best, o, place)
            best = tl.where(found > best, found, best)
            odd += found * 0.0
        tl.store(which + to, tl.where(best > 0, place, 4).to(tl.int8), mask=ok)
        best = tl.maximum(best, 0.0) + odd
    tl.store(out + to, best, mask=ok)


@triton.jit
def convolve(
    xh,
    xl,
    wh,
    wl,
    bias,
    out,
    which,
    B,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    F: tl.constexpr,
    POOL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Pixels of the convolution; with POOL the largest of each window of four, if above zero."""
    OH: tl.constexpr = H - KH + 1
    OW: tl.constexpr = W - KW + 1
    K: tl.constexpr = KH * KW * C
    ROW: tl.constexpr = KW * C
    BLOCKS: tl.constexpr = (F + BN - 1) // BN
    t = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0) // BLOCKS
    m = block * BM + tl.arange(0, BM)
    f = tl.program_id(0) % BLOCKS * BN + tl.arange(0, BN)
    if POOL:  # the four of a window lie next to each other
        PH: tl.constexpr = OH // 2
        PW: tl.constexpr = OW // 2
        N = B * PH * PW
        q = m // 4
        b = q // (PH * PW)
        oh = q // PW % PH * 2 + m % 4 // 2
        ow = q % PW * 2 + m % 2
        ok = m < 4 * N
    else:
        N = B * OH * OW
        b = m // (OH * OW)
        oh = m // OW % OH
        ow = m % OW
        ok = m < N
    k = tl.arange(0, BK)
    at = ((b * H + oh) * W + ow) * C
    xh += t * (B * H * W * C)
    xl += t * (B * H * W * C)
    wh += t * (K * F)
    wl += t * (K * F)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        r = first + k
        pixel = at[:, None] + (r // ROW * (W * C) + r % ROW)[None, :]
        seen = ok[:, None] & (r < K)[None, :]
        filters = r[:, None] * F + f[None, :]
        known = (r < K)[:, None] & (f < F)[None, :]
        ah = tl.load(xh + pixel, mask=seen, other=0.0)
        bh = tl.load(wh + filters, mask=known, other=0.0)
        al = tl.load(xl + pixel, mask=seen, other=0.0)
        bl = tl.load(wl + filters, mask=known, other=0.0)
        total = _plus(ah, al, bh, bl, total)
    total += tl.load(bias + t * F + f, mask=f < F, other=0.0)[None, :]
    if POOL:
        four = tl.reshape(total, (BM // 4, 4, BN))
        best, place = tl.max(four, axis=1, return_indices=True)
        place = tl.where(best > 0, place, 4)
        # What is not finite must not vanish behind a maximum.
        best = tl.maximum(best, 0.0) + tl.sum(four * 0.0, axis=1)
        n = block * (BM // 4) + tl.arange(0, BM // 4)
        to = t * (N * F) + n[:, None] * F + f[None, :]
        real = (n < N)[:, None] & (f < F)[None, :]
        tl.store(out + to, best, mask=real)
        tl.store(which + to, place.to(tl.int8), mask=real)
    else:
        to = t * (N * F) + m[:, None] * F + f[None, :]
        tl.store(out + to, total, mask=ok[:, None] & (f < F)[None, :])


@triton.jit
def spread_slopes(
    slope,
    which,
    high,
    low,
    sums,
    B,
    OH: tl.constexpr,
    OW: tl.constexpr,
    F: tl.constexpr,
    POOL: tl.constexpr,
    BR: tl.constexpr,
    BN: tl.constexpr,
):
    """Slopes of the output, at the pixels of the convolution that they belong to; and sums of them
    over BR pixels, for the bias."""
    PH: tl.constexpr = OH // 2 if POOL else OH
    PW: tl.constexpr = OW // 2 if POOL else OW
    N = B * PH * PW
    t = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BR + tl.arange(0, BR)
    f = tl.arange(0, BN)
    ok = (n < N)[:, None] & (f < F)[None, :]
    at = t * (N * F) + n[:, None] * F + f[None, :]
    g = tl.load(slope + at, mask=ok, other=0.0)
    high += t * (B * OH * OW * F)
    low += t * (B * OH * OW * F)
    if POOL:
        place = tl.load(which + at, mask=ok, other=4).to(tl.int32)
        g = tl.where(place < 4, g, 0.0)
        first = (n // (PH * PW) * OH + n // PW % PH * 2) * OW + n % PW * 2
        h, rest = _halves(g)
        for o in tl.static_range(4):
            to = (first + (o // 2 * OW + o % 2))[:, None] * F + f[None, :]
            tl.store(high + to, tl.where(place == o, h, 0.0), mask=ok)
            tl.store(low + to, tl.where(place == o, rest, 0.0), mask=ok)
    else:
        to = n[:, None] * F + f[None, :]
        h, rest = _halves(g)
        tl.store(high + to, h, mask=ok)
        tl.store(low + to, rest, mask=ok)
    parts = tl.num_programs(0)
    total = tl.sum(g, axis=0)
    tl.store(sums + (t * parts + tl.program_id(0)) * F + f, total, mask=f < F)


@triton.jit
def slopes_of_pixels(
    gh,
    gl,
    wh,
    wl,
    out,
    B,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    F: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BF: tl.constexpr,
):
    """A program has the same row of several images: kernel rows that do not reach it are left
    out."""
    OH: tl.constexpr = H - KH + 1
    OW: tl.constexpr = W - KW + 1
    IMAGES: tl.constexpr = BM // W
    STEPS: tl.constexpr = (F + BF - 1) // BF
    BLOCKS: tl.constexpr = (C + BN - 1) // BN
    t = tl.program_id(1).to(tl.int64)
    c = tl.program_id(0) % BLOCKS * BN + tl.arange(0, BN)
    ih = tl.program_id(0) // BLOCKS % H
    p = tl.arange(0, BM)
    b = tl.program_id(0) // (BLOCKS * H) * IMAGES + p // W
    iw = p % W
    ok = (p < IMAGES * W) & (b < B)
    gh += t * (B * OH * OW * F)
    gl += t * (B * OH * OW * F)
    wh += t * (KH * KW * C * F)
    wl += t * (KH * KW * C * F)
    at = ((b * OH + ih) * OW + iw) * F
    total = tl.zeros((BM, BN), tl.float32)
    low = tl.maximum(ih - OH + 1, 0) * (KW * STEPS)
    high = (tl.minimum(ih, KH - 1) + 1) * (KW * STEPS)
    for i in range(low, high):
        tap = i // STEPS
        kh = tap // KW
        kw = tap % KW
        f = i % STEPS * BF + tl.arange(0, BF)
        met = ok & (iw >= kw) & (iw < kw + OW)
        seen = met[:, None] & (f < F)[None, :]
        pixel = (at - (kh * OW + kw) * F)[:, None] + f[None, :]
        filters = tap * (C * F) + c[None, :] * F + f[:, None]
        known = (c < C)[None, :] & (f < F)[:, None]
        ah = tl.load(gh + pixel, mask=seen, other=0.0)
        bh = tl.load(wh + filters, mask=known, other=0.0)
        al = tl.load(gl + pixel, mask=seen, other=0.0)
        bl = tl.load(wl + filters, mask=known, other=0.0)
        total = _plus(ah, al, bh, bl, total)
    to = t * (B * H * W * C) + ((b * H + ih) * W + iw)[:, None] * C + c[None, :]
    tl.store(out + to, total, mask=ok[:, None] & (c < C)[None, :])


@triton.jit
def slopes_of_filters(
    xh,
    xl,
    gh,
    gl,
    out,
    B,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    F: tl.constexpr,
    PARTS,
    EACH,
    BR: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
):
    """Over EACH pixels, in PARTS sums that are added up afterwards."""
    OH: tl.constexpr = H - KH + 1
    OW: tl.constexpr = W - KW + 1
    K: tl.constexpr = KH * KW * C
    ROW: tl.constexpr = KW * C
    M = B * OH * OW
    BLOCKS: tl.constexpr = (F + BN - 1) // BN
    t = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    f = tl.program_id(0) % BLOCKS * BN + tl.arange(0, BN)
    r = tl.program_id(0) // BLOCKS * BR + tl.arange(0, BR)
    shift = r // ROW * (W * C) + r % ROW
    xh += t * (B * H * W * C)
    xl += t * (B * H * W * C)
    gh += t * (M * F)
    gl += t * (M * F)
    total = tl.zeros((BR, BN), tl.float32)
    for first in range(0, EACH, BM):
        m = part * EACH + first + tl.arange(0, BM)
        at = ((m // (OH * OW) * H + m // OW % OH) * W + m % OW) * C
        pixel = at[:, None] + shift[None, :]
        seen = (m < M)[:, None] & (r < K)[None, :]
        slopes = m[:, None] * F + f[None, :]
        known = (m < M)[:, None] & (f < F)[None, :]
        ah = tl.load(xh + pixel, mask=seen, other=0.0)
        bh = tl.load(gh + slopes, mask=known, other=0.0)
        al = tl.load(xl + pixel, mask=seen, other=0.0)
        bl = tl.load(gl + slopes, mask=known, other=0.0)
        total = _plus(tl.trans(ah), tl.trans(al), bh, bl, total)
    to = (t * PARTS + part) * (K * F) + r[:, None] * F + f[None, :]
    tl.store(out + to, total, mask=(r < K)[:, None] & (f < F)[None, :])


@triton.jit(do_not_specialize=["begin"])
def descend(
    w,
    towards,
    slope,
    out,
    lr,
    pull,
    begin,
    w_apart,
    towards_apart,
    out_apart,
    slope_apart,
    S0,
    S1,
    S2,
    S3,
    N0: tl.constexpr,
    N1: tl.constexpr,
    N2: tl.constexpr,
    N3: tl.constexpr,
    PULLED: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A step for one tensor of a model, which begins at `begin` in the flat vectors and whose
    gradient has strides of its own."""
    COLUMNS: tl.constexpr = N1 * N2 * N3
    BLOCKS: tl.constexpr = (COLUMNS + WIDE - 1) // WIDE
    t = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) // BLOCKS * HIGH + tl.arange(0, HIGH)
    j = tl.program_id(0) % BLOCKS * WIDE + tl.arange(0, WIDE)
    ok = (i < N0)[:, None] & (j < COLUMNS)[None, :]
    place = j // (N2 * N3) * S1 + j // N3 % N2 * S2 + j % N3 * S3
    g = tl.load(slope + t * slope_apart + (i * S0)[:, None] + place[None, :], mask=ok)
    at = begin + (i * COLUMNS)[:, None] + j[None, :]
    v = tl.load(w + t * w_apart + at, mask=ok)
    if PULLED:
        g += pull * (v - tl.load(towards + t * towards_apart + at, mask=ok))
    tl.store(out + t * out_apart + at, v - lr * g, mask=ok)


@triton.jit
def add_squares(vectors, sums, apart, length, EACH: tl.constexpr, BLOCK: tl.constexpr):
    """Over so many numbers of a vector, in double precision; their order does not depend on where
    in memory a vector begins."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, EACH, BLOCK):
        i = tl.program_id(1) * EACH + first + column
        value = tl.load(vectors + row * apart + i, mask=i < length, other=0.0).to(tl.float64)
        total += value * value
    tl.store(sums + row * tl.num_programs(1) + tl.program_id(1), tl.sum(total, axis=0))


@triton.jit
def add_up(
    vectors, scale, onto, apart, count, length, STEPS: tl.constexpr, HIGH: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Vectors times their scales, on a grid and rounded towards zero, as integers; none of those
    whose scale is zero."""
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((WIDE,), tl.int64)
    for first in range(0, count, HIGH):
        row = first + tl.arange(0, HIGH)
        by = tl.load(scale + row, mask=row < count, other=0.0)
        seen = (by != 0.0)[:, None] & (column < length)[None, :]
        at = row.to(tl.int64)[:, None] * apart + column[None, :]
        value = tl.load(vectors + at, mask=seen, other=0.0).to(tl.float64)
        total += tl.sum((value * by[:, None] * STEPS).to(tl.int64), axis=0)
    tl.store(
        onto + column,
        tl.load(onto + column, mask=column < length) + total,
        mask=column < length,
    )
