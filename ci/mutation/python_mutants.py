"""Small changes to a Python source that ought to be noticed: what ci/mutate_torch makes of a file.

Works on the syntax tree, and replaces the text of single nodes. What would fail by a missing name alone
is not among them, nor what changes decorators, annotations, and the text of errors and warnings.
"""
import ast
import collections
import copy

COMPARED = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
            ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
COUNTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
           ast.BitOr: ast.BitAnd}
DECLARATIONS = (ast.FunctionDef, ast.ClassDef, ast.Return, ast.Import, ast.ImportFrom, ast.Global,
                ast.Nonlocal)
UNWRAPPED = {"list", "tuple", "dict", "set", "_detach_helper", "detach", "unpack"}


class Changes(ast.NodeVisitor):
    """All changes of a source that compile, in `found`: (scope, begin, end, new, kind)."""

    def __init__(self, source):
        self.text, self.scope, self.found = source, [], []
        self.starts = [0, *(i + 1 for i, c in enumerate(source) if c == "\n")]
        tree = ast.parse(source)
        self.original = ast.dump(tree)
        stored = [n for n in ast.walk(tree) if isinstance(getattr(n, "ctx", None), ast.Store)]
        names = [getattr(n, "id", getattr(n, "attr", None)) for n in stored]
        names += [n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)]
        self.bound = collections.Counter(names)
        self.visit(tree)

    def place(self, line, column):
        """Columns of a syntax tree are bytes."""
        start = self.starts[line - 1]
        return start + len(self.text[start:start + column].encode()[:column].decode(errors="ignore"))

    def add(self, node, new, kind):
        new = new if isinstance(new, str) else ast.unparse(new)
        begin = self.place(node.lineno, node.col_offset)
        end = self.place(node.end_lineno, node.end_col_offset)
        text = self.text[:begin] + new + self.text[end:]
        try:
            if ast.dump(ast.parse(text)) == self.original:
                return
            compile(text, "mutant", "exec")
        except SyntaxError:
            return
        self.found.append((".".join(self.scope) or "<module>", begin, end, new, kind))

    def changed(self, node, kind, change):
        other = copy.deepcopy(node)
        change(other)
        self.add(node, other, kind)

    def visit_FunctionDef(self, node):
        self.enter(node, [*node.args.defaults, *filter(None, node.args.kw_defaults)])

    def visit_ClassDef(self, node):
        self.enter(node, [])

    def enter(self, node, before):
        if any(ast.unparse(d) == "overload" for d in node.decorator_list):
            return
        self.scope.append(node.name)
        for x in [*before, *node.body]:
            self.visit(x)
        for i, x in enumerate(node.body if isinstance(node, ast.FunctionDef) else []):
            if i > 0 and not isinstance(x, DECLARATIONS):
                self.add(x, "return", "returned early")
        self.scope.pop()

    def visit_Raise(self, node):
        self.add(node, "pass", "statement deleted")

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Constant):
            return
        self.add(node, "pass", "statement deleted")
        if not ast.unparse(node.value).startswith("warnings.warn("):
            self.visit(node.value)

    def visit_Assign(self, node):
        names = [getattr(t, "id", getattr(t, "attr", None)) for t in node.targets]
        # What is bound nowhere else would fail by its name alone.
        if all(n is None and not isinstance(t, ast.Tuple) or n is not None and self.bound[n] > 1
               for n, t in zip(names, node.targets)):
            self.add(node, "pass", "statement deleted")
        if names != ["__all__"]:
            self.visit(node.value)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node):
        self.add(node, "pass", "statement deleted")
        self.visit_BinOp(node)

    def visit_Delete(self, node):
        self.add(node, "pass", "statement deleted")

    def visit_Return(self, node):
        if node.value is not None and ast.unparse(node.value) != "None":
            self.add(node, "return None", "result dropped")
            self.visit(node.value)

    def visit_With(self, node):
        for item in node.items:
            if item.optional_vars is None and "nullcontext" not in ast.unparse(item.context_expr):
                self.add(item.context_expr, "contextlib.nullcontext()", "with left out")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node):
        if not isinstance(node.body[-1], ast.Raise):
            self.add(node.body[0], "raise", "exception let through")
        for x in node.body:
            self.visit(x)

    def condition(self, node):
        test = node.test
        if not isinstance(test, (ast.Compare, ast.UnaryOp)):
            self.add(test, f"(not ({ast.unparse(test)}))", "condition negated")
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = condition

    def visit_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            self.add(node, f"({ast.unparse(node.operand)})", "negation deleted")
        self.generic_visit(node)

    def visit_Compare(self, node):
        def change(other):
            other.ops[0] = COMPARED[type(node.ops[0])]()
        self.changed(node, "comparison changed", change)
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        other = copy.deepcopy(node)
        other.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        self.add(node, f"({ast.unparse(other)})", "operator changed")
        for i in range(len(node.values)):
            self.changed(node, "part of a condition dropped", lambda x: x.values.pop(i))
        self.generic_visit(node)

    def visit_BinOp(self, node):
        if type(node.op) in COUNTED and not any(isinstance(x, ast.JoinedStr) for x in ast.walk(node)):
            def change(other):
                other.op = COUNTED[type(node.op)]()
            self.changed(node, "operator changed", change)
            self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, bool):
            self.add(node, str(not node.value), "constant changed")
        elif isinstance(node.value, int):
            self.add(node, str(node.value + 1), "constant changed")

    def visit_JoinedStr(self, node):
        pass

    def visit_Call(self, node):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        plain = [a for a in node.args if not isinstance(a, ast.Starred)]
        for i in range(len(node.keywords)):
            self.changed(node, "argument dropped", lambda x: x.keywords.pop(i))
        if len(plain) == len(node.args) and name not in ("isinstance", "getattr"):
            for i in range(len(plain) - 1):
                def swap(x):
                    x.args[i], x.args[i + 1] = x.args[i + 1], x.args[i]
                self.changed(node, "arguments swapped", swap)
        if name in UNWRAPPED and not node.keywords:
            inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
            self.add(node, inner, "call left out")
        self.generic_visit(node)


def changes_of(source):
    return Changes(source).found
