"""Small changes to a C++ source that ought to be noticed: what ci/mutate makes of a file.

Works on tokens, and leans on the sources' being formatted by clang-format: a binary operator has
blanks on both sides, an angle bracket of a template has not. What does not compile drops out later.
"""
import hashlib
import re
from dataclasses import dataclass

TOKEN = re.compile(r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<string>R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')
  | (?P<number>\d[\w.']*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<operator><=>|<<=|>>=|->|::|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[][(){};:,.?~!=<>+*/%&|^-])
""", re.VERBOSE | re.MULTILINE | re.DOTALL)

# A binary operator, and what it becomes.
SWAPPED = {"<": ["<="], "<=": ["<"], ">": [">="], ">=": [">"], "==": ["!="], "!=": ["=="],
           "&&": ["||"], "||": ["&&"], "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"],
           "+=": ["-="], "-=": ["+="], "*=": ["/="], "<<": [">>"], ">>": ["<<"], "&": ["|"],
           "|": ["&"], "^": ["&"]}
WORDS = {"true": "false", "false": "true", "break": "continue", "continue": "break", "max": "min",
         "min": "max"}
OPENING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    begin: int
    end: int


@dataclass(frozen=True)
class Mutant:
    """`text[begin:end]` of the file becomes `new`."""
    file: str
    begin: int
    end: int
    new: str
    kind: str
    line: int
    was: str
    becomes: str
    #: Tells mutants apart whose lines read the same: the line of code before.
    after: str

    @property
    def id(self):
        content = "\n".join((self.file, self.kind, self.after, self.was, self.becomes))
        return hashlib.sha256(content.encode()).hexdigest()[:10]

    def applied(self, text):
        return text[:self.begin] + self.new + text[self.end:]


def tokens_of(text):
    found = (Token(m.lastgroup, m.group(), m.start(), m.end()) for m in TOKEN.finditer(text))
    return [t for t in found if t.kind not in ("comment", "directive")]


class Source:
    """A file's tokens, which bracket closes which, and the braces that hold statements."""

    def __init__(self, text):
        self.text = text
        self.tokens = tokens_of(text)
        self.partner = {}
        open_ = []
        for i, t in enumerate(self.tokens):
            if t.kind == "operator" and t.text in OPENING:
                open_.append(i)
            elif t.kind == "operator" and t.text in OPENING.values():
                self.partner[open_[-1]] = i
                self.partner[i] = open_.pop()
        self.code = []
        for i, t in enumerate(self.tokens):
            if t.text == "{" and i in self.partner and self.holds_statements(i):
                self.code.append(i)

    def is_(self, i, *texts):
        return 0 <= i < len(self.tokens) and self.tokens[i].kind != "string" and \
            self.tokens[i].text in texts

    def holds_statements(self, i):
        if self.is_(i - 1, ")", "]", "else", "do", "try", "const", "noexcept", "override", "mutable"):
            return True
        # Back to the beginning of what the brace ends.
        head = []
        for j in range(i - 1, -1, -1):
            if self.is_(j, ";", "{", "}"):
                break
            head.append(self.tokens[j].text)
        if not head:
            around = next((b for b in reversed(self.code) if self.partner[b] > i), None)
            return around is not None or self.is_(i - 1, "}")
        return "->" in head and not {"class", "struct", "namespace", "enum"} & set(head)

    def blank_around(self, i):
        t = self.tokens[i]
        return self.text[t.begin - 1].isspace() and self.text[t.end:t.end + 1].isspace()

    def end_of_statement(self, i):
        while i < len(self.tokens) and not self.is_(i, ";"):
            i = self.partner[i] if i in self.partner and self.tokens[i].text in OPENING else i
            i += 1
        return i

    def span(self, first, last):
        return self.text[self.tokens[first].begin:self.tokens[last].end]


def statements(source):
    """First and last token of each statement, and the last token of the block that it is in."""
    for brace in source.code:
        end = source.partner[brace]
        i = brace + 1
        while i < end:
            if source.is_(i, "{"):
                i = source.partner[i] + 1
            elif source.is_(i, "if", "while", "for", "switch", "catch"):
                i += 2 if source.is_(i + 1, "constexpr") else 1
                i = source.partner[i] + 1
            elif source.is_(i, "else", "do", "try"):
                i += 1
            elif source.is_(i, "case", "default", "public", "private", "protected"):
                while not source.is_(i, ":"):
                    i += 1
                i += 1
            else:
                last = source.end_of_statement(i)
                yield i, last, end
                i = last + 1


DECLARES = re.compile(r"^[\w:<>,&*\s]*?[\w>&*]\s+[*&]?(\w+)\s*(?:=|\(|\{|;)")


def deletions(source):
    for first, last, end in statements(source):
        if first == last or source.is_(first, "using", "static_assert", "typedef"):
            continue
        if source.is_(first, "return") and last > first + 1:
            continue
        # Room made in advance: without it the same happens, a little later.
        if ".reserve(" in source.span(first, last):
            continue
        declared = DECLARES.match(source.span(first, last))
        if declared and not source.is_(first, "return", "throw", "delete"):
            rest = source.span(last, end)
            if re.search(rf"\b{declared.group(1)}\b", rest):
                continue  # It would not compile.
        yield first, last, ";", "statement deleted"


def conditions(source):
    for i, t in enumerate(source.tokens):
        if t.kind == "word" and t.text in ("if", "while"):
            at = i + 2 if source.is_(i + 1, "constexpr") else i + 1
            last = source.partner.get(at)
            if last is None or last == at + 1:
                continue
            inside = source.tokens[at + 1:last]
            if any(x.text in (";", "=") and x.kind == "operator" for x in inside):
                continue
            first, last = at + 1, last - 1
            yield from negation(source, first, last)
            if t.text == "if" and not source.is_(i + 1, "constexpr"):
                yield first, last, "true", "condition made true"
                # Without its one statement it is the same.
                if source.is_(last + 2, "{", "return", "throw"):
                    yield first, last, "false", "condition made false"
        elif source.is_(i, "?"):
            first = i
            while not source.is_(first - 1, "(", "=", "return", ",", "{", ";", ":", "?"):
                first -= 1
                if source.is_(first, ")", "]", "}"):
                    first = source.partner[first]
            if first < i:
                yield from negation(source, first, i - 1)
        elif source.is_(i, "return") and not source.is_(i + 1, ";"):
            last = source.end_of_statement(i) - 1
            if last > i + 1 or source.tokens[last].kind == "word":
                words = {x.text for x in source.tokens[i + 1:last + 1]}
                if not words & {"true", "false", "{", "nullptr", "?", "make_unique", "string"}:
                    yield from negation(source, i + 1, last)


def negation(source, first, last):
    inside = [x.text for x in source.tokens[first:last + 1] if x.kind == "operator"]
    # A single comparison or negation is turned around by itself.
    turned = [x for x in inside if x in ("==", "!=", "!")]
    if len(turned) == 1 and not {"&&", "||"} & set(inside):
        return
    yield first, last, f"!({source.span(first, last)})", "condition negated"


def operators(source):
    for i, t in enumerate(source.tokens):
        if t.kind == "number":
            try:
                value = int(t.text.rstrip("uUlL"), 0)
            except ValueError:
                continue
            if t.text.startswith("0x") and len(t.text) > 6:
                continue
            yield i, i, str(value + 1), "constant changed"
            if value > 0:
                yield i, i, str(value - 1), "constant changed"
        elif t.kind == "word" and t.text in WORDS:
            yield i, i, WORDS[t.text], "word changed"
        elif t.kind != "operator":
            continue
        elif t.text in SWAPPED and source.blank_around(i):
            if source.is_(i - 1, "template", "operator"):
                continue
            near = source.tokens[max(i - 1, 0)], source.tokens[min(i + 1, len(source.tokens) - 1)]
            if t.text == "+" and (any(x.kind == "string" for x in near) or joins_text(source, i)):
                continue
            for new in SWAPPED[t.text]:
                yield i, i, new, "operator changed"
        elif t.text in ("++", "--"):
            yield i, i, {"++": "--", "--": "++"}[t.text], "operator changed"
        elif t.text == "!" and not source.is_(i + 1, "="):
            yield i, i, "", "negation deleted"


def joins_text(source, i):
    """Whether the + at i is in an expression of strings: there is no other way to join them."""
    first = i
    while first > 0 and not source.is_(first, ";", "{", "}"):
        first -= 1
    last = source.end_of_statement(i)
    return any(x.kind == "string" and x.text[0] != "'" for x in source.tokens[first:last])


def mutants_of(file, text):
    """All mutants of a file, in order; no two of them have one id."""
    source = Source(text)
    lines = text.split("\n")
    found = {}
    for make in (deletions, conditions, operators):
        for first, last, new, kind in make(source):
            begin, end = source.tokens[first].begin, source.tokens[last].end
            line = text.count("\n", 0, begin)
            until = text.count("\n", 0, end)
            start = text.rfind("\n", 0, begin) + 1
            stop = (text + "\n").find("\n", end)
            before = next((x.strip() for x in reversed(lines[:line]) if x.strip()), "")
            mutant = Mutant(file, begin, end, new, kind, line + 1,
                            squeezed(" ".join(lines[line:until + 1])),
                            squeezed(text[start:begin] + new + text[end:stop]), before)
            found.setdefault(mutant.id, mutant)
    return sorted(found.values(), key=lambda m: (m.begin, m.end, m.new))


def squeezed(text):
    return " ".join(text.split())
