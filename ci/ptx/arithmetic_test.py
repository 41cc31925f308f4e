"""The arithmetic of the interpreter of PTX is that of its instructions, against exact fractions."""
import random
import sys
import unittest
from fractions import Fraction
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ptx import arithmetic  # noqa: E402

FORMATS = {np.float32: (24, -149, 127), np.float64: (53, -1074, 1023)}


def nearest(exact, zero, dtype):
    """A fraction rounded once, to nearest even; `zero` gives an exact 0 its sign."""
    bits, least, most = FORMATS[dtype]
    if exact == 0:
        return dtype(zero)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    whole = round(size / unit) * unit  # Python rounds a half to even.
    sign = -1 if exact < 0 else 1
    return dtype(sign * float("inf")) if whole >= Fraction(2) ** (most + 1) else dtype(sign * float(whole))


def fused(a, b, c, dtype):
    return nearest(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)),
                   float(a) * float(b) + float(c), dtype)


def values(draw, count, dtype):
    """Finite numbers of any exponent, half of them around 1; few bits often, so that sums meet ties and cancel."""
    word, size = (np.uint32, 32) if dtype == np.float32 else (np.uint64, 64)
    fraction = FORMATS[dtype][0] - 1
    out = []
    while len(out) < count:
        exponent = draw.getrandbits(size - 1 - fraction)
        if draw.random() < 0.6:
            exponent = FORMATS[dtype][2] + draw.randint(-30, 30)
        kept = draw.getrandbits(fraction) & ~((1 << draw.choice([0, 0, fraction - 3, fraction // 2, fraction])) - 1)
        bits = draw.getrandbits(1) << (size - 1) | exponent << fraction | kept
        value = np.array([bits], word).view(dtype)[0]
        if np.isfinite(value):
            out.append(value)
    return np.array(out, dtype)


def bits_of(x):
    return np.asarray(x).view(np.uint32 if np.asarray(x).dtype == np.float32 else np.uint64)


class Arithmetic(unittest.TestCase):
    def setUp(self):
        self.seed = random.SystemRandom().getrandbits(32)
        self.draw = random.Random(self.seed)

    def expect(self, got, expected, *operands):
        bad = np.flatnonzero(bits_of(got) != bits_of(expected))
        self.assertEqual(bad.size, 0, f"seed {self.seed}: " + ", ".join(
            f"{[float(o[k]).hex() for o in operands]}: {float(got[k]).hex()} instead of {float(expected[k]).hex()}"
            for k in bad[:3]))

    def test_a_fused_multiply_add_rounds_once(self):
        for dtype, fma in ((np.float32, arithmetic.fma32), (np.float64, arithmetic.fma64)):
            a, b, c = (values(self.draw, 6000, dtype) for _ in range(3))
            # A third nearly cancels, and a third lies on or beside a tie.
            product = np.array([fused(x, y, 0, dtype) for x, y in zip(a, b)])
            keep = np.isfinite(product)
            c[::3] = np.where(keep, -product, c)[::3]
            tiny = np.ldexp(product, -FORMATS[dtype][0] - self.draw.randint(-1, 1)).astype(dtype)
            c[1::3] = np.where(keep, tiny, c)[1::3]
            with np.errstate(all="ignore"):
                got = fma(a, b, c)
            self.expect(got, np.array([fused(*abc, dtype) for abc in zip(a, b, c)]), a, b, c)

    def test_a_sum_just_below_a_tie_is_rounded_down(self):
        # (1 + u)(2^-24 - 2^-47) = 2^-24 - 2^-70 for u = 2^-23; added to 1 + u, a double shows the tie alone, which is
        # even above.
        a, b = np.array([1 + 2**-23], np.float32), np.array([2**-24 - 2**-47], np.float32)
        self.assertEqual(float(arithmetic.fma32(a, b, a)[0]), 1 + 2**-23)
        twice = (a.astype(np.float64) * b + a).astype(np.float32)
        self.assertEqual(float(twice[0]), 1 + 2**-22)

    def test_a_result_that_is_no_number_has_the_bits_of_ptx(self):
        with np.errstate(all="ignore"):
            for got in (arithmetic.nan32(np.array([np.inf], np.float32) - np.float32(np.inf)),
                        arithmetic.fma32(*(np.array([x], np.float32) for x in (np.inf, 0, 1)))):
                self.assertEqual(bits_of(got)[0], 0x7fffffff)
            infinite = arithmetic.fma64(*(np.array([x]) for x in (np.inf, 1.0, -1.0)))
        self.assertEqual(infinite[0], np.inf)

    def test_denormals_are_kept(self):
        least = np.array([2**-149], np.float32)
        self.assertEqual(arithmetic.fma32(least, np.array([1], np.float32), np.array([0], np.float32))[0], least[0])
        a = np.array([2.0**-600])
        self.assertEqual(arithmetic.fma64(a, np.array([2.0**-474]), np.array([0.0]))[0], 2.0**-1074)

    def test_division_of_integers_goes_towards_zero(self):
        a, b = np.array([7, -7, 7, -7, -8]), np.array([2, 2, -2, -2, 2])
        self.assertEqual(arithmetic.divided(a, b).tolist(), [3, -3, -3, 3, -4])
        self.assertEqual(arithmetic.remainder(a, b).tolist(), [1, -1, 1, -1, 0])

    def test_a_shift_by_all_bits_leaves_zeros_or_the_sign(self):
        n = np.array([0, 31, 32, 77], np.uint32)
        ones = np.full(4, 0xffffffff, np.uint32)
        self.assertEqual(arithmetic.shifted(ones, n, False).tolist(), [0xffffffff, 0x80000000, 0, 0])
        self.assertEqual(arithmetic.shifted(ones, n, True).tolist(), [0xffffffff, 1, 0, 0])
        self.assertEqual(arithmetic.shifted(ones.view(np.int32), n, True).tolist(), [-1] * 4)

    def test_the_larger_of_two_is_a_number_where_one_is_and_plus_zero(self):
        a, b = (np.array(x, np.float32) for x in ([np.nan, 1, -0.0, 0.0], [2, np.nan, 0.0, -0.0]))
        got = arithmetic.larger(a, b)
        self.assertEqual(bits_of(got).tolist(), bits_of(np.array([2, 1, 0, 0], np.float32)).tolist())

    def test_bytes_are_permuted(self):
        a, b = (np.array([x], np.uint32) for x in (0x33221100, 0x77665544))
        self.assertEqual(arithmetic.permuted(a, b, 0x7610)[0], 0x77661100)
        self.assertEqual(arithmetic.permuted(a, b | np.uint32(1 << 31), 0xf)[0], 0x000000ff)


if __name__ == "__main__":
    unittest.main()
