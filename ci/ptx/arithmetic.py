"""Arithmetic of PTX on arrays, to the bit: each function rounds as its instruction does.

NumPy adds, multiplies, divides and takes roots as IEEE 754 asks, rounds to nearest even, and keeps denormals. It lacks
fused multiply-adds, and the NaN that PTX gives in float32: these are here.
"""
import math
from fractions import Fraction

import numpy as np

NAN32 = np.uint32(0x7fffffff)


def nan32(x):
    """float32 results with the one NaN that PTX knows; those of double keep whatever NaN they are."""
    unordered = x != x
    if unordered.any():
        x.view(np.uint32)[unordered] = NAN32
    return x


def two_sum(a, b):
    """Rounded sum and its error, exactly (Knuth), unless it overflows."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def to_odd(s, error):
    """s + error rounded to odd, where s is the rounded sum: if inexact, the neighbour whose last bit is set.

    Rounded once more to a significand that is shorter by at least two bits, the result is the sum rounded once: it lies
    on no tie unless the sum does, and on the same side of each (Boldo and Melquiond, Emulation of FMA, 2008).
    """
    bits = s.view(np.int64)
    even = (bits & 1) == 0
    # An error of NaN, from an infinite sum, is neither.
    away = even & (((error > 0) & (s > 0)) | ((error < 0) & (s < 0)))
    towards = even & (((error > 0) & (s < 0)) | ((error < 0) & (s > 0)))
    return (bits + away - towards).view(np.float64)


def fma32(a, b, c):
    """The product of two float32 has 48 bits and is exact in double; the sum there is rounded to odd, then once."""
    product = a.astype(np.float64) * b
    s, error = two_sum(product, c.astype(np.float64))
    return nan32(to_odd(s, error).astype(np.float32))


SPLIT = float((1 << 27) + 1)


def two_product(a, b):
    """Rounded product and its error, exactly (Dekker), away from overflow and underflow."""
    p = a * b
    t = SPLIT * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = SPLIT * b
    b_high = t - (t - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def fma64_exact(a, b, c):
    """One fused multiply-add of finite doubles by fractions: slow, and right whatever the exponents."""
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total == 0:
        # Only where product and c have one sign, or are zeros of one sign, is the sum -0.
        return a * b + c if a * b == 0 else 0.0
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


# Within, Dekker's parts neither overflow nor lose bits: a product above 2^-900 has its error above 2^-1007.
LARGEST, SMALLEST = 2.0**900, 2.0**-900


def fma64(a, b, c):
    """Boldo and Melquiond's: error terms of product and sum are added with rounding to odd, then once to nearest."""
    a, b, c = np.broadcast_arrays(a, b, c)
    p, p_error = two_product(a, b)
    t, t_error = two_sum(c, p_error)
    v, v_error = two_sum(p, t)
    w, w_error = two_sum(t_error, v_error)
    result = v + to_odd(w, w_error)
    plain = a * b + c
    size = np.abs(p)
    # A product of 0 or with what is not finite is exact, or a NaN, or infinite in any case.
    special = (p == 0) & ((a == 0) | (b == 0)) | ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    largest = np.maximum(np.maximum(np.abs(a), np.abs(b)), np.abs(c))
    safe = (size > SMALLEST) & (size < LARGEST) & (largest < LARGEST) & ((c == 0) | (np.abs(c) > SMALLEST))
    result = np.where(special, plain, result)
    for i in np.flatnonzero(~safe & ~special):
        result[i] = fma64_exact(float(a[i]), float(b[i]), float(c[i]))
    return result


def shifted(a, n, right):
    """a shifted by n; a shift by all bits or more leaves zeros, or copies of the sign."""
    bits = a.dtype.itemsize * 8
    far = n >= bits
    by = np.where(far, 0, n).astype(a.dtype)
    if not right:
        return np.where(far, a.dtype.type(0), a << by)
    if a.dtype.kind == "i":
        return a >> np.where(far, bits - 1, n).astype(a.dtype)
    return np.where(far, a.dtype.type(0), a >> by)


def divided(a, b):
    """Towards zero."""
    q = a // b
    return q if a.dtype.kind == "u" else q + ((a - q * b != 0) & ((a < 0) != (b < 0)))


def remainder(a, b):
    return a - divided(a, b) * b


def larger(a, b):
    """A NaN only of two; +0 above -0."""
    top = np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))
    return nan32(top) if top.dtype == np.float32 else top


def permuted(a, b, selector):
    """prmt.b32 in its general mode, without copies of signs."""
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    out = np.zeros_like(both)
    for k in range(4):
        nibble = selector >> (4 * k) & 15
        byte = both >> np.uint64(8 * (nibble & 7)) & np.uint64(255)
        if nibble & 8:
            byte = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        out |= byte << np.uint64(8 * k)
    return out.astype(np.uint32)
