"""The loop that answers the harness; PROTOCOL.md beside this package says what is spoken."""

import gc
import json
import os
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, BinaryIO

import numpy as np

from rematch.subjects.case import Case, Model, case_from_json, model_from_json
from rematch.subjects.records import Bits, Record, decode

VERSION = 1
"""The version of the protocol."""

REQUESTS, ANSWERS = 3, 4

_WARM = 16
"""After so many answers, what a framework loads when it is first used has been loaded."""


class Unsupported(Exception):
    """Raised by Subject.run() for a case that cannot be run here; the sentence says why. The case
    is not judged."""


@dataclass(frozen=True)
class Arrays:
    """The data of a case. Runs must not write to it."""

    parameters: list[np.ndarray] = field(default_factory=list)
    buffers: list[np.ndarray] = field(default_factory=list)
    inputs: list[np.ndarray] = field(default_factory=list)
    """One for each forward, in order of step and microbatch; `targets` likewise."""
    targets: list[np.ndarray] = field(default_factory=list)
    reevaluation: np.ndarray | None = None
    trial_input: np.ndarray | None = None
    """Input of the trial, if a failure is injected; `trial_target` likewise."""
    trial_target: np.ndarray | None = None
    further_inputs: list[list[np.ndarray]] = field(default_factory=list)
    """The model inputs after the first, for each forward; empty if there are none."""
    further_reevaluation_inputs: list[np.ndarray] = field(default_factory=list)
    further_trial_inputs: list[np.ndarray] = field(default_factory=list)

    def inputs_of(self, forward: int) -> list[np.ndarray]:
        """All model inputs of a forward."""
        further = self.further_inputs[forward] if self.further_inputs else []
        return [self.inputs[forward], *further]


@dataclass(frozen=True)
class Request:
    """One run of a case. `case`, `model` and `arrays` are the same objects in every request that
    means the same case."""

    case: Case
    model: Model
    arrays: Arrays
    checkpointed: bool = False
    """False: the plan is ignored and every layer runs plain."""
    detached_layers: frozenset[int] = field(default_factory=frozenset)
    """Layers whose parameters take part as constants."""
    layer_values: bool = False
    """`values` are wanted, though the run is plain."""


class Subject:
    """An implementation under test. Override what differs."""

    name: str = "subject"
    versions: dict[str, str] = {}
    may_vary: bool = False
    """Whether two equal runs may differ; the harness then repeats and compares them."""
    rounds: str = "equal"
    """ "differently": the plain and the checkpointed run may round the same numbers differently,
    because each is compiled for itself."""
    whole_segments: bool = False
    """Whether segments are differentiated as functions, as a whole: see PROTOCOL.md."""
    cases_per_shape: int = 1
    """How many cases in succession differ in their seed and their training steps alone. More than 1
    for a framework that compiles every new model, and runs one again much faster."""
    new_plans: bool = False
    """They differ in their plans as well: what is compiled is single operations."""
    exports: bool = False
    """Whether export() is defined."""
    layers: Sequence[str] = ()
    """Declarations of layers of the subject's own; see PROTOCOL.md."""
    lacks: Collection[str] = ()
    """Features that cases must not have and that implements() need not name; see PROTOCOL.md."""
    options: Mapping[str, Sequence[str]] = {}
    """What cases decide beside the model, the plan and the training steps, by name. The first value
    is the one of cases that do not name the option."""
    shares: Mapping[str, float] = {}
    """The share of cases that have another value than the first; all are equally frequent where
    it is not said."""
    profile: str = ""
    """The name of a subject whose known differences are this one's, too."""
    files: bool = True
    """Whether large arrays may come in files of the harness's machine, which serve() reads."""

    def implements(self, features: Sequence[str]) -> list[str]:
        """The features that cases may have, of all that there are."""
        return list(features)

    def observes(self, observables: Sequence[str]) -> list[str]:
        """The observables that run() fills in, of all that there are."""
        raise NotImplementedError

    def run(self, request: Request, record: Record) -> None:
        """Runs the case from scratch and fills in `record`.

        An error of the implementation under test goes into record.error(). Raises Unsupported for
        a case that cannot be run; any other exception means that the subject is broken, and ends
        the hunt.
        """
        raise NotImplementedError

    def found(self) -> Mapping[str, Any]:
        """The "layers" of its library that cases have, and those "not tried", each with the reason."""
        return {"layers": [], "not tried": {}}

    def export(self, request: Request, finding: str) -> str:
        """A script that shows the finding in the bare framework. Raises Unsupported with a sentence
        where there is none."""
        raise NotImplementedError


_TOLD = ("name", "may_vary", "rounds", "whole_segments", "cases_per_shape", "new_plans", "exports", "files")
"""What the harness is told of a subject as it is."""


class _BadRequest(Exception):
    """A message does not follow the protocol."""


class _Session:
    """Memory from one request to the next."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._told: tuple[Case, Model, Arrays] | None = None
        self._bits: Bits = {}

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if "hello" in message:
            return {"hello": self._hello(message["hello"])}
        run = message.get("run") or message.get("export", {})
        try:
            answer = self._export(run) if "export" in message else self._run(run)
        except Unsupported as why:
            answer = {"unsupported": str(why)}
        except _BadRequest as error:
            answer = {"error": f"{self._subject.name}: {error}"}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": _complaint(self._subject, error)}
        return {"answer": {"id": run.get("id", 0), **answer}}

    def _hello(self, hello: dict[str, Any]) -> dict[str, Any]:
        subject = self._subject
        return {
            "protocol": VERSION,
            **{field: getattr(subject, field) for field in _TOLD},
            "versions": {"python": sys.version.split()[0], **subject.versions},
            "implements": subject.implements(hello.get("features", [])),
            "lacks": [f for f in hello.get("features", []) if f in subject.lacks],
            "observes": subject.observes(hello.get("observables", [])),
            "options": {name: list(values) for name, values in subject.options.items()},
            "shares": dict(subject.shares),
            "layers": list(subject.layers),
            **({"profile": subject.profile} if subject.profile else {}),
        }

    def _export(self, asked: dict[str, Any]) -> dict[str, Any]:
        if not self._subject.exports:
            raise Unsupported(f"{self._subject.name} exports no scripts")
        request = self._request(asked)
        return {"script": self._subject.export(request, asked.get("finding", ""))}

    def _run(self, run: dict[str, Any]) -> dict[str, Any]:
        request = self._request(run)
        record = Record(self._bits)
        self._subject.run(request, record)
        self._bits = record.bits
        return {"record": record.to_json()}

    def _request(self, run: dict[str, Any]) -> Request:
        if "case" in run:
            self._told = None
            self._bits = {}
            try:
                sent = run["arrays"]
                arrays = Arrays(
                    **{kind.name: _decoded(sent[kind.name]) for kind in fields(Arrays) if kind.name in sent}
                )
                self._told = case_from_json(run["case"]), model_from_json(run["model"]), arrays
            except (KeyError, OSError, TypeError, ValueError) as error:
                raise _BadRequest(f"the request cannot be read: {error!r}") from error
        if self._told is None:
            raise _BadRequest("a run without a case, and none was sent before")
        return Request(
            *self._told,
            checkpointed=run.get("checkpointed", False),
            detached_layers=frozenset(run.get("detached_layers", [])),
            layer_values=run.get("layer_values", False),
        )


def _decoded(sent: Any) -> Any:
    """An array, or a list of what is one or a list."""
    return [_decoded(part) for part in sent] if isinstance(sent, list) else decode(sent)


def _complaint(subject: Subject, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    what = f"{subject.name}: {type(error).__name__}: {error}{place}. "
    if isinstance(error, NotImplementedError):
        return what + "Define run() and observes() in the subject's class."
    return what + (
        "Catch what the implementation under test raises and pass it to record.error(); raise "
        "Unsupported for a case that cannot be run."
    )


_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def _write(answers: BinaryIO, message: dict[str, Any]) -> None:
    try:
        text = _ENCODER.encode(message)
    except (RecursionError, TypeError, ValueError) as error:
        answer = message.get("answer", {})
        complaint = f"the record cannot be written: {error}; pass numbers and strings of Python"
        text = json.dumps({"answer": {"id": answer.get("id", 0), "error": complaint}})
    answers.write(text.encode() + b"\n")
    answers.flush()


def serve(subject: Subject, requests: int = REQUESTS, answers: int = ANSWERS) -> None:
    """Answers the harness until it closes `requests`, or is gone. Both are file descriptors.

    Raises SystemExit with a sentence when they are not open, that is, when nobody asks.
    """
    try:
        incoming = os.fdopen(requests, "rb")
        outgoing = os.fdopen(answers, "wb")
    except OSError:
        raise SystemExit(
            f'{subject.name} is a subject of the harness, which starts it by itself: rematch check --subject "COMMAND"'
        ) from None
    # Programs that the subject starts must not hold the harness's pipes open.
    os.set_inheritable(requests, False)
    os.set_inheritable(answers, False)
    # What anybody prints, C libraries included, goes where it does no harm.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    session = _Session(subject)
    try:
        for answered, line in enumerate(incoming):
            if answered == _WARM:
                # Frameworks are a million objects, which live as long as the process. To look through them for cycles
                # again and again takes a quarter of the time.
                gc.collect()
                gc.freeze()
            _write(outgoing, session.answer(json.loads(line.decode())))
    except (KeyboardInterrupt, BrokenPipeError):
        # Nothing is left to be said, not even on the way out.
        os._exit(130)
