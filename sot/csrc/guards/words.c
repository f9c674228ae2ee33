/* The words that a program compares instead of repeating its checks. */

#include "guards/program.h"

const uintptr_t no_word = 0;

/* NULL stands for a value without a word, which is compared every time. */
static Word *put(Word *word, const void *address)
{
    *word = address != NULL ? (Word){address, *(const uintptr_t *)address} : (Word){&no_word, ~(uintptr_t)0};
    return word + 1;
}

void stop_watching(Program *p, Node *node)
{
    if (node->watched != NULL) {
        dict_unwatch(node->watched, &p->warm);
        node->watched = NULL;
    }
}

static Word *put_version(Program *p, Node *node, PyObject *dict, Word *word)
{
    const void *address = word_of_dict_version(dict, &node->held);
    int is_same_dict = address != NULL && word->address == address;
    int changed = !is_same_dict || !is_same_version(*word->address, word->expected);
    if (changed && node->changes < RESTLESS) {
        node->changes++;
        p->disturbed = 1;
    }
    if (!is_same_dict || node->changes == RESTLESS) {
        stop_watching(p, node);
    }
    if (node->changes == RESTLESS && node->held != NULL) { /* looked at in every call, it need not tell any more */
        dict_forget(&node->held);
        address = NULL;
    }
    return put(word, address);
}

static Word *put_items(Program *p, const Node *node, PyObject *value, Word *word)
{
    word = put(word, &((PyVarObject *)value)->ob_size);
    if (PyList_Check(value)) {
        word = put(word, &((PyListObject *)value)->ob_item);
    }
    const Node *end = p->nodes + node->end;
    for (const Node *child = node + 1; child < end; child = p->nodes + child->end) {
        if (child->step == INDEX) {
            word = put(word, items_of(value) + child->number);
        }
    }
    return word;
}

static Word *put_code(PyFunctionObject *f, Word *word)
{
    word = put(word, &f->func_code);
    word = put(word, &f->func_defaults);
    return put(word, &f->func_kwdefaults);
}

/* The words of the checks of a node, except those that are added once for all checks and children. */
static Word *remember_checks(Program *p, Node *node, PyObject *value, Word *word)
{
    for (int i = 0; i < node->check_count; i++) {
        const Check *check = p->checks + node->first_check + i;
        switch (reads_of(check->kind)) {
        case FUNCTION_FIELDS:
            word = put_code((PyFunctionObject *)value, word);
            break;
        case CONTENTS:
            Py_XSETREF(node->kept, Py_NewRef(value));
            break;
        case CLASS:
        case SIZE:
        case DICT_VERSION:
        case CLASS_VERSION:
        case NOTHING:
        case METADATA:
            break;
        }
    }
    return word;
}

static const Py_ssize_t *size_of(PyObject *value)
{
    if (PyDict_Check(value)) {
        return &((PyDictObject *)value)->ma_used;
    }
    return PyAnySet_Check(value) ? &((PySetObject *)value)->used : &((PyVarObject *)value)->ob_size;
}

/* The words that the checks of a node and the loads of its children have read. `count_words` returns the room needed.
   */
void remember(Program *p, Node *node, PyObject *value)
{
    Word *word = p->words + node->first_word, *end = p->words + node[1].first_word;
    if (node->reads_type) {
        word = put(word, &value->ob_type);
    }
    if (node->reads_slot) {
        word = put(word, _PyObject_GetDictPtr(value));
    }
    if (node->reads_dict) {
        word = put_version(p, node, value, word);
    }
    if (node->reads_items) {
        word = put_items(p, node, value, word);
    } else if (node->reads_size) {
        word = put(word, size_of(value));
    }
    word = remember_checks(p, node, value, word);
    if (node->step == HELD && PyType_Check(value)) {
        word = put(word, word_of_type_version((PyTypeObject *)value));
    }
    const Node *last = p->nodes + node->end;
    for (const Node *child = node + 1; child < last; child = p->nodes + child->end) {
        if (child->step == FIELD) {
            word = put(word, field_of(value, child));
        } else if (child->step == CELL) {
            word = put(word, &((PyCellObject *)value)->ob_ref);
        }
    }
    for (; word < end; word++) {
        *word = (Word){&no_word, 0};
    }
}

static int child_words(const Node *child)
{
    return child->step == FIELD || child->step == CELL || child->step == INDEX;
}

/* The greatest number of words that `remember` writes. */
int count_words(Program *p, const Node *node)
{
    int count = node->reads_type + node->reads_slot + node->reads_dict + (node->reads_items ? 2 : node->reads_size);
    for (int i = 0; i < node->check_count; i++) {
        count += p->checks[node->first_check + i].kind == CODE ? 3 : 0;
    }
    count += node->step == HELD && PyType_Check(node->operand);
    const Node *end = p->nodes + node->end;
    for (const Node *child = node + 1; child < end; child = p->nodes + child->end) {
        count += child_words(child);
    }
    return count;
}
