"""Small changes to a Python source that ought to be noticed, for ci/maintain/mutate_torch.

Works on the syntax tree, and replaces the text of single nodes. Mutants that would fail by a missing
name alone are left out, and so are changes of decorators, annotations, and the text of errors and warnings.
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


def but(node, **fields):
    """The same node with other fields."""
    other = copy.copy(node)
    vars(other).update(fields)
    return other


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

    def deleted(self, node):
        self.add(node, "pass", "statement deleted")

    visit_Raise = visit_Delete = deleted

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Constant):
            return
        self.deleted(node)
        if not ast.unparse(node.value).startswith("warnings.warn("):
            self.visit(node.value)

    def visit_Assign(self, node):
        names = [getattr(t, "id", getattr(t, "attr", None)) for t in node.targets]
        # Names that are bound nowhere else would fail by themselves.
        if all(n is None and not isinstance(t, ast.Tuple) or n is not None and self.bound[n] > 1
               for n, t in zip(names, node.targets)):
            self.deleted(node)
        if names != ["__all__"]:
            self.visit(node.value)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node):
        self.deleted(node)
        self.visit_BinOp(node)

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
        ops = [COMPARED[type(node.ops[0])](), *node.ops[1:]]
        self.add(node, but(node, ops=ops), "comparison changed")
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        self.add(node, f"({ast.unparse(but(node, op=other))})", "operator changed")
        for i in range(len(node.values)):
            left = node.values[:i] + node.values[i + 1:]
            self.add(node, but(node, values=left), "part of a condition dropped")
        self.generic_visit(node)

    def visit_BinOp(self, node):
        if type(node.op) in COUNTED and not any(isinstance(x, ast.JoinedStr) for x in ast.walk(node)):
            self.add(node, but(node, op=COUNTED[type(node.op)]()), "operator changed")
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
        args, keywords = node.args, node.keywords
        for i in range(len(keywords)):
            self.add(node, but(node, keywords=keywords[:i] + keywords[i + 1:]), "argument dropped")
        starred = any(isinstance(a, ast.Starred) for a in args)
        if not starred and name not in ("isinstance", "getattr"):
            for i in range(len(args) - 1):
                swapped = [*args[:i], args[i + 1], args[i], *args[i + 2:]]
                self.add(node, but(node, args=swapped), "arguments swapped")
        if name in UNWRAPPED and not node.keywords:
            inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
            self.add(node, inner, "call left out")
        self.generic_visit(node)


def changes_of(source):
    return Changes(source).found
