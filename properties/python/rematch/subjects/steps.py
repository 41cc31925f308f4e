"""Steps of training, as PROTOCOL.md describes them, for any framework."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rematch.subjects.protocol import Request
from rematch.subjects.records import Record


class TrialError(RuntimeError):
    """The error that a layer throws in a trial."""


class Steps:
    """One run of a case: what is done in which order, and noted. How a framework does it is for derived
    classes to say."""

    def __init__(self, request: Request, record: Record) -> None:
        self.request, self.record = request, record
        self.protocol = request.case.protocol
        self.trial = ""
        """The failure that is injected, while it is tried."""

    def go(self) -> None:
        """Runs all steps. Whatever the framework raises comes through."""
        if self.protocol.inject != "none":
            self._try()
        self.begin()
        for step in range(self.protocol.steps):
            self._step(step)
        if self.protocol.reevaluate:
            assert self.request.arrays.reevaluation is not None, "reevaluate without an input for it"
            self.note("reevaluation", self.evaluate(), step=self.protocol.steps - 1)

    def _step(self, step: int) -> None:
        waiting = []
        for microbatch in range(self.protocol.microbatches):
            with self.microbatch(last=microbatch + 1 == self.protocol.microbatches):
                waiting.append(self.forward(step, microbatch))
                if not self.protocol.forwards_first:
                    self.backward(waiting.pop())
        while waiting:
            self.backward(waiting.pop())
        for index in range(len(self.request.model.parameters)):
            self.note("parameter_gradient", self.gradient(index), step=step, index=index)
        self.update()
        for index in range(len(self.request.model.parameters)):
            self.note("parameter", self.parameter(index), step=step, index=index)
        for index in range(len(self.request.model.buffers)):
            self.note("buffer", self.buffer(index), step=step, index=index)
        self.note_random_state("after_step", step=step)

    def _try(self) -> None:
        """The trial: only how it ends is of concern, and what it leaves behind."""
        record, self.record = self.record, Record()
        failed, message, wrong = False, "", ""
        self.trial = self.protocol.inject
        try:
            self.fail()
            left = self.left_behind()
        except Exception as error:
            failed, message, wrong = True, self.message(error), self.other_error(error)
            # Looked at while the error is handled: with it go the frames that it came through, and
            # generators in them that were not told of it.
            left = self.left_behind()
        self.trial, self.record = "", record
        restored = self.restore()
        record.trial(failed, message, left or restored)
        if wrong:
            record.error("OtherError", wrong)

    def note(self, quantity: str, value: Any, **where: Any) -> None:
        """Notes an array of the framework's; None is an absent gradient."""
        raise NotImplementedError

    def note_random_state(self, moment: str, **where: int) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        """Makes ready for the first step, after a trial."""

    def microbatch(self, last: bool) -> AbstractContextManager[Any]:
        """A context around a forward and its backward; `last` says whether it is the step's last microbatch."""
        return nullcontext()

    def forward(self, step: int, microbatch: int) -> Any:
        """Runs a forward and notes what it shows. What is returned is given to backward()."""
        raise NotImplementedError

    def backward(self, pending: Any) -> None:
        """Runs all backwards of a forward, and notes what they show."""
        raise NotImplementedError

    def gradient(self, index: int) -> Any:
        """The gradient of a parameter as it has accumulated."""
        raise NotImplementedError

    def update(self) -> None:
        """Updates the parameters by their gradients, and drops these unless they are to be kept."""
        raise NotImplementedError

    def parameter(self, index: int) -> Any:
        raise NotImplementedError

    def buffer(self, index: int) -> Any:
        raise NotImplementedError

    def evaluate(self) -> Any:
        """The first output in evaluation mode, without a plan."""
        raise NotImplementedError

    def fail(self) -> None:
        """Runs a forward and its backward with the injected failure."""
        raise NotImplementedError

    def let_go(self) -> None:
        """Lets go of what the run has used."""

    def message(self, error: Exception) -> str:
        return str(error)

    def other_error(self, error: Exception) -> str:
        """Tells what is wrong with the error that ended a trial; "" where nothing is known to be."""
        return ""

    def left_behind(self) -> str:
        """Settings that a trial left changed, while its error is handled."""
        return ""

    def restore(self) -> str:
        """Sets back what a trial may have changed. Returns settings that were not as they are to be."""
        return ""
