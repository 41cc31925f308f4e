"""Small changes to a C++ source that ought to be noticed, for ci/maintain/mutate.

Works on the syntax tree, and replaces the text of single nodes. Mutants that do not compile drop out later.
"""
import re

import tree_sitter
import tree_sitter_cpp

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))
# An operator or a word, and what it becomes.
OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
             "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "+=": "-=", "-=": "+=", "*=": "/=",
             "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&", "++": "--", "--": "++"}
WORDS = {"true": "false", "false": "true", "break": "continue", "continue": "break", "max": "min",
         "min": "max"}
DELETED = ("expression_statement", "throw_statement", "break_statement", "continue_statement",
           "return_statement", "declaration")
BLOCKS = ("compound_statement", "case_statement", "else_clause")


def below(node):
    yield node
    for child in node.children:
        yield from below(child)


def text_of(node):
    return node.text.decode()


def deletions(node):
    owner = node.parent
    if node.type not in DELETED or not (
            owner.type in BLOCKS or node in (owner.child_by_field_name("body"),
                                             owner.child_by_field_name("consequence"))):
        return
    text = text_of(node)
    if text == ";" or (node.type == "return_statement" and text != "return;"):
        return
    # Room made in advance: without it the same happens, a little later.
    if ".reserve(" in text:
        return
    if node.type == "declaration":
        # Keeps a declaration whose name is used later: it would not compile.
        name = next(n for n in below(node.child_by_field_name("declarator")) if n.type == "identifier")
        if re.search(rf"\b{text_of(name)}\b", text_of(owner)[node.end_byte - owner.start_byte:]):
            return
    yield node, ";", "statement deleted"


def conditions(node):
    condition = node.child_by_field_name("condition")
    if node.type in ("if_statement", "while_statement", "do_statement"):
        value = condition.child_by_field_name("value") or condition.named_child(0)
        if value.type in ("declaration", "assignment_expression") or condition.child_by_field_name("initializer"):
            return
        yield from negation(value)
        if node.type == "if_statement" and node.child(1).type != "constexpr":
            yield value, "true", "condition made true"
            # Leaves out a block of one statement, whose deletion is the same.
            guarded = node.child_by_field_name("consequence").type
            if guarded in ("compound_statement", "return_statement", "throw_statement"):
                yield value, "false", "condition made false"
    elif node.type == "conditional_expression":
        yield from negation(condition)
    elif node.type == "return_statement" and node.named_child_count:
        value = node.named_child(0)
        if value.type not in ("number_literal", "string_literal") and not re.search(
                r"\b(true|false|nullptr|make_unique|string)\b|[{?]", text_of(value)):
            yield from negation(value)


def negation(node):
    inside = [n.type for n in below(node) if not n.children]
    # A single comparison or negation is turned around by itself.
    turned = [x for x in inside if x in ("==", "!=", "!")]
    if len(turned) != 1 or {"&&", "||"} & set(inside):
        yield node, f"!({text_of(node)})", "condition negated"


def operators(node):
    if node.children:
        return
    text = text_of(node)
    if node.type == "number_literal":
        try:
            value = int(text.rstrip("uUlL"), 0)
        except ValueError:
            return
        if text.startswith("0x") and len(text) > 6:
            return
        yield node, str(value + 1), "constant changed"
        if value != 0:
            yield node, str(value - 1), "constant changed"
    elif text in WORDS and node.type != "string_content":
        yield node, WORDS[text], "word changed"
    elif text == "!" and node.parent.type == "unary_expression":
        yield node, "", "negation deleted"
    elif text in OPERATORS and node.parent.type in ("binary_expression", "assignment_expression",
                                                    "update_expression"):
        # There is no other way to join texts.
        if text != "+" or '"' not in text_of(statement_of(node)):
            yield node, OPERATORS[text], "operator changed"


def statement_of(node):
    while node.parent and not node.type.endswith(("statement", "declaration", "initializer")):
        node = node.parent
    return node


def changes_of(file, text):
    """All changes of a file, in order: (file, begin, end, new, kind)."""
    found = []
    data = text.encode()
    for node in below(PARSER.parse(data).root_node):
        for changed, new, kind in (*deletions(node), *conditions(node), *operators(node)):
            # Places of nodes are bytes.
            begin = len(data[:changed.start_byte].decode())
            end = begin + len(text_of(changed))
            found.append((file, begin, end, new, kind))
    return sorted(found, key=lambda change: change[1:4])
