"""The interpreter of PTX runs threads as CUDA does, and says where a kernel leaves what CUDA defines."""
import struct
import sys
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ptx import machine as machines  # noqa: E402
from ptx import judge, trace  # noqa: E402
from ptx.machine import Fault, Machine  # noqa: E402
from ptx.parser import Unknown, parse  # noqa: E402
from ptx.translate import Translation  # noqa: E402

X = 0x7f0000000000
HEAD = """
.version 9.0
.target sm_90
.address_size 64
.entry k(.param .u64 k_param_0)
{
  .reg .pred %p<9>;
  .reg .b32 %r<20>;
  .reg .f32 %f<9>;
  .reg .b64 %rd<20>;
  .shared .align 4 .b8 s[256];
  ld.param.u64 %rd1, [k_param_0];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.s32 %r4, %r2, %r3, %r1;
  mul.wide.u32 %rd3, %r4, 4;
  add.s64 %rd4, %rd2, %rd3;  // Address of the thread's element.
  mov.u32 %r5, s;
  shl.b32 %r6, %r1, 2;
  add.s32 %r7, %r5, %r6;  // Its place in shared memory.
"""


def ran(body, elements, blocks=1, threads=64):
    """The elements of x after a kernel, which begins with HEAD."""
    kernel = parse(HEAD + body + "\nret;\n}\n")["k"]
    before = np.asarray(elements)
    m = Machine(Translation(kernel), blocks, threads, np.frombuffer(struct.pack("<Q", X), np.uint8),
                [(X, before.view(np.uint8))])
    m.run()
    return m.memory.content(0).copy().view(before.dtype)


class Runs(unittest.TestCase):
    def test_each_thread_has_its_place_whatever_blocks_run_at_a_time(self):
        before = machines.MOST_LANES
        self.addCleanup(setattr, machines, "MOST_LANES", before)
        for machines.MOST_LANES in (64, 100, before):
            got = ran("st.global.u32 [%rd4], %r4;", np.zeros(320, np.uint32), blocks=5)
            self.assertEqual(got.tolist(), list(range(320)))

    def test_lanes_that_part_in_a_loop_meet_behind_it(self):
        body = """
  mov.u32 %r8, 0;
  mov.u32 %r9, 0;
$again:
  setp.ge.u32 %p1, %r8, %r1;
  @%p1 bra $behind;
  add.s32 %r9, %r9, %r8;
  add.s32 %r8, %r8, 1;
  bra.uni $again;
$behind:
  shfl.sync.down.b32 %r10|%p2, %r9, 1, 31, -1;
  @!%p2 mov.u32 %r10, 7;
  st.global.u32 [%rd4], %r10;"""
        got = ran(body, np.zeros(64, np.uint32))
        sums = [t * (t - 1) // 2 for t in range(64)]
        self.assertEqual(got.tolist(), [7 if t % 32 == 31 else sums[t + 1] for t in range(64)])

    def test_shuffles_stay_within_their_segment(self):
        for how, b, c, expected in (("down", 1, 0x100f, lambda t: t if t % 16 == 15 else t + 1),
                                    ("bfly", 3, 31, lambda t: t ^ 3),
                                    ("idx", 2, 0x180f + 0x10, lambda t: t // 8 * 8 + 2),
                                    ("up", 1, 0x0, lambda t: t if t % 32 == 0 else t - 1)):
            got = ran(f"shfl.sync.{how}.b32 %r8|%p1, %r1, {b}, {c}, -1;\nst.global.u32 [%rd4], %r8;",
                      np.zeros(64, np.uint32))
            self.assertEqual(got.tolist(), [expected(t) for t in range(64)], how)

    def test_a_barrier_orders_what_threads_share(self):
        body = """
  ld.global.f32 %f1, [%rd4];
  st.shared.f32 [%r7], %f1;
  bar.sync 0;
  sub.s32 %r8, 252, %r6;
  add.s32 %r9, %r5, %r8;
  ld.shared.f32 %f2, [%r9];
  st.global.f32 [%rd4], %f2;"""
        got = ran(body, np.arange(128, dtype=np.float32), blocks=2)
        self.assertEqual(got.tolist(), [*range(63, -1, -1), *range(127, 63, -1)])
        with self.assertRaisesRegex(Fault, "reads what thread .* wrote without a barrier|never written"):
            ran(body.replace("bar.sync 0;", ""), np.arange(64, dtype=np.float32))
        both = "mov.u32 %r8, 1;\nst.shared.u32 [%r5], %r8;"
        with self.assertRaisesRegex(Fault, "writes at the same time"):
            ran(both, np.zeros(64, np.uint32))

    def test_a_meeting_of_a_warp_orders_its_threads_and_no_others(self):
        body = """
  st.shared.u32 [%r7], %r1;
  bar.warp.sync -1;
  xor.b32 %r8, %r6, {turned};
  add.s32 %r9, %r5, %r8;
  ld.shared.u32 %r10, [%r9];
  st.global.u32 [%rd4], %r10;"""
        got = ran(body.replace("{turned}", "4"), np.zeros(64, np.uint32))
        self.assertEqual(got.tolist(), [t ^ 1 for t in range(64)])
        with self.assertRaisesRegex(Fault, "reads what thread .* wrote without a barrier"):
            ran(body.replace("{turned}", "128"), np.zeros(64, np.uint32))

    def test_what_shared_memory_is_not_for_is_an_error(self):
        with self.assertRaisesRegex(Fault, "line 24 .*thread 0: reads shared memory that was never written"):
            ran("\nld.shared.u32 %r8, [%r7];", np.zeros(64, np.uint32))
        with self.assertRaisesRegex(Fault, "thread 63: shared memory at 256, of which there are 256 bytes"):
            ran("st.shared.u32 [%r7+4], %r1;", np.zeros(64, np.uint32))

    def test_accesses_stay_within_a_block_and_are_aligned(self):
        with self.assertRaisesRegex(Fault, "block 1, thread 0: address .* is 256 bytes from a block of 256"):
            ran("st.global.u32 [%rd4], %r4;", np.zeros(64, np.uint32), blocks=2)
        with self.assertRaisesRegex(Fault, "thread 0: address .* is not aligned to 8 bytes"):
            ran("ld.global.v2.u32 {%r8, %r9}, [%rd4+4];", np.zeros(66, np.uint32))

    def test_threads_may_not_meet_in_global_memory_either(self):
        with self.assertRaisesRegex(Fault, "writes at the same time"):
            ran("st.global.u32 [%rd2], %r1;", np.zeros(64, np.uint32))
        with self.assertRaisesRegex(Fault, "writes what .* read without a barrier"):
            ran("ld.global.u32 %r8, [%rd2];\nsetp.eq.s32 %p1, %r1, 1;\n@%p1 st.global.u32 [%rd2], %r8;",
                np.zeros(64, np.uint32))

    def test_a_barrier_that_threads_never_reach_is_an_error(self):
        body = "setp.lt.u32 %p1, %r1, 20;\n@%p1 bra $end;\nbar.sync 0;\n$end:"
        with self.assertRaisesRegex(Fault, "line 25 .*thread 20: waits at a barrier that thread 0 never reaches"):
            ran(body, np.zeros(64, np.uint32))
        other = "setp.lt.u32 %p1, %r1, 20;\n@%p1 bra $other;\nbar.sync 0;\nbra $end;\n$other:\nbar.sync 0;\n$end:"
        with self.assertRaisesRegex(Fault, "waits at a barrier that thread .* passes at another place"):
            ran(other, np.zeros(64, np.uint32))

    def test_lanes_of_a_mask_have_to_come(self):
        with self.assertRaisesRegex(Fault, "waits for lanes of its warp that have ended or wait elsewhere"):
            ran("setp.lt.u32 %p1, %r1, 5;\n@%p1 bra $end;\nbar.warp.sync -1;\n$end:", np.zeros(64, np.uint32))
        with self.assertRaisesRegex(Fault, "a mask without the lane itself"):
            ran("bar.warp.sync 65535;", np.zeros(64, np.uint32))
        with self.assertRaisesRegex(Fault, "a shuffle from a lane that is not in its mask"):
            ran("setp.gt.u32 %p1, %r1, 7;\n@%p1 bra $end;\nshfl.sync.idx.b32 %r8|%p2, %r1, 9, 31, 255;\n$end:",
                np.zeros(8, np.uint32), threads=16)

    def test_a_division_by_zero_is_an_error(self):
        with self.assertRaisesRegex(Fault, "thread 0: divides by 0"):
            ran("div.u32 %r8, %r4, %r1;", np.zeros(64, np.uint32))

    def test_an_instruction_that_is_not_known_is_named_with_its_line(self):
        for text in ("add.rn.ftz.f32 %f1, %f2, %f3;", "add.f32 %f1, %f2, %f3;", "ex2.approx.f32 %f1, %f2;",
                     "atom.global.add.f32 %f1, [%rd2], %f2;", "bar.sync 1;", "cvt.rzi.s32.f32 %r8, %f1;"):
            with self.assertRaisesRegex(Unknown, "line 23.*" + text.split()[0].replace(".", "[.]"), msg=text):
                ran(text, np.zeros(64, np.uint32))


class Traces(unittest.TestCase):
    def test_kernels_of_unnamed_namespaces_have_one_name(self):
        ours = "ZN7rematch4cuda12_GLOBAL__N_17nothingEvE4Here"
        for theirs in ("_ZN7rematch4cuda40_GLOBAL__N__8ab8e777_8_probe_cu_e7253c8e7nothingEv",
                       "_ZN7rematch4cuda46_GLOBAL__N__94cd5f13_9_probes_cu_5fcf2f97_72667nothingEv"):
            self.assertEqual(trace.plain_name(theirs), trace.plain_name(ours))
        self.assertEqual(trace.plain_name(ours), "_ZN7rematch4cuda12_GLOBAL__N_17nothingEv")

    def test_kernels_with_wide_indices_run_the_launches_of_narrow_ones_that_take_the_same_numbers(self):
        text = ".entry {}(.param .{} a, .param .align 4 .b8 b[{}])\n{{\nret;\n}}\n"
        kernels = parse("".join(text.format(*k) for k in (("_Z1fIjEvT_", "u32", 8), ("_Z1fIlEvT_", "u64", 8),
                                                          ("_Z1gIiEvT_", "u32", 8), ("_Z1gIlEvT_", "u64", 16))))
        self.assertEqual(judge.narrower("_Z1fIlEvT_", kernels), "_Z1fIjEvT_")
        self.assertIsNone(judge.narrower("_Z1gIlEvT_", kernels))
        self.assertIsNone(judge.narrower("_Z1fIjEvT_", kernels))

    def test_a_function_has_the_last_name_before_its_template_arguments(self):
        self.assertEqual(judge.function_of("_ZN7rematch4cuda12_GLOBAL__N_114product_kernelIfEEvl"), "product_kernel")
        self.assertEqual(judge.function_of("_Z1fIjEvT_"), "f")

    def test_the_launches_that_are_run_are_spread_up_to_the_last(self):
        self.assertEqual(judge.spread(list("abcdefg"), 3), list("bdg"))
        self.assertEqual(judge.spread(list("abcdefg"), 1), ["g"])
        self.assertEqual(judge.spread(list("ab"), 3), list("ab"))

    def test_arguments_become_what_parameters_are(self):
        kernel = parse(".entry k(.param .u64 a, .param .f32 b, .param .u32 c, .param .align 8 .b8 d[16])\n{\nret;\n}")["k"]
        arguments = [("s", struct.pack("<i", -2)), ("f", struct.pack("<d", 0.5)), ("u", struct.pack("<Q", 7)),
                     ("b", bytes(range(16)))]
        launch = trace.Launch("k", "s", 1, 1, 0, arguments, {}, {})
        self.assertEqual(trace.parameters(kernel, launch).tobytes(),
                         struct.pack("<qfI", -2, 0.5, 7) + bytes(range(16)))
        launch.arguments.pop()
        with self.assertRaisesRegex(Unknown, "3 arguments for 4 parameters"):
            trace.parameters(kernel, launch)

    def test_any_bit_that_differs_is_found_but_in_a_nan_that_was_stored_as_one(self):
        def compared(expected, got, kind=0):
            kernel = parse(HEAD + "ret;\n}")["k"]
            m = Machine(Translation(kernel), 1, 1, np.zeros(8, np.uint8), [(X, np.asarray(got).view(np.uint8))])
            m.memory.floats[::4] = kind
            return trace.difference(trace.Launch("k", "s", 1, 1, 0, [], {}, {X: np.asarray(expected).view(np.uint8)}), m)

        self.assertEqual(compared(np.array([1.5, 0], np.float32), np.array([1.5, -0.0], np.float32), 4)[0], 1)
        self.assertEqual(compared(np.array([1, 2], np.uint8), np.array([1, 3], np.uint8)),
                         (1, "byte 1 of the block of 2: 0301 instead of 0201", 0))
        nans = np.array([0x7fffffff, 0xffc00000, 0x3f800000], np.uint32)
        self.assertEqual(compared(nans, nans[[1, 0, 2]], 4), (0, "", 2))
        self.assertEqual(compared(nans, nans[[1, 2, 0]], 4)[0], 6)
        self.assertEqual(compared(nans, nans[[1, 0, 2]])[0], 8)
        # Beside a NaN, which makes one of both where they are taken for a double.
        one, two = (np.array([x, np.nan], np.float32) for x in (1, 2))
        self.assertEqual(compared(one, two, 4)[0], 2)

    def test_stores_of_numbers_say_how_wide_they_are(self):
        kernel = parse(HEAD + "mov.f32 %f1, 0f3F800000;\nst.global.f32 [%rd4], %f1;\nret;\n}")["k"]
        m = Machine(Translation(kernel), 1, 1, np.frombuffer(struct.pack("<Q", X), np.uint8), [(X, np.zeros(8, np.uint8))])
        m.run()
        self.assertEqual(m.memory.floats[:8].tolist(), [4] + [0] * 7)


if __name__ == "__main__":
    unittest.main()
