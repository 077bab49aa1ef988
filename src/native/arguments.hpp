// Arguments of the bindings: types of arrays, and the checks that run before a kernel reads one. A type that does not
// fit (numbers, axes, order in memory) is a TypeError of nanobind; everything else is a ValueError from here.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace leaftrace {

namespace nb = nanobind;

template <class T, int D>
using Array = nb::ndarray<T, nb::ndim<D>, nb::c_contig, nb::device::cpu>;
template <class T, int D>
using Maybe = std::optional<Array<T, D>>;
template <class T>
using AnyShape = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

// Ids of leaves; `ids_of` checks the type of its numbers.
template <int D>
using AnyIds = nb::ndarray<nb::ro, nb::ndim<D>, nb::c_contig, nb::device::cpu>;
using IdArray = AnyIds<2>;
using MaybeIds = std::optional<IdArray>;
using First = Array<const std::int32_t, 1>;
using Edges = Array<const std::int64_t, 1>;
using Vector = Array<const double, 1>;

// What is not a template is in arguments.cpp: compiled once, not in each of the many bindings.
[[noreturn]] void refuse(const char* what);
[[noreturn]] void refuse(const std::string& what);
[[noreturn]] void refuse_type(const char* name, const char* what);  // a TypeError
inline void check(bool ok, const char* what) {
    if (!ok) refuse(what);
}

// An array of any type, for checks that do not depend on it.
struct AnyArray {
    std::size_t axes;
    const std::int64_t* shape;
    const void* data;
    std::size_t itemsize;
    nb::dlpack::dtype dtype;

    template <class A>
    AnyArray(const A& a)
        : axes(a.ndim()), shape(a.shape_ptr()), data(a.data()), itemsize(a.itemsize()), dtype(a.dtype()) {}
};

// Check the sizes of an array, and that its numbers begin at a multiple of their size.
void check_shape(const AnyArray& array, const char* name, const Index* sizes, std::size_t axes);
template <class A, class... N>
void shaped(const A& array, const char* name, N... sizes) {
    const Index expected[] = {static_cast<Index>(sizes)...};
    check_shape(array, name, expected, sizeof...(N));
}

// Check the number of axes of an array whose type leaves it open.
void check_axes(const AnyArray& array, const char* name, std::size_t least, std::size_t most);

// Weights are (n), or (R, n) if trees drew rows differently. Gives the stride from one tree to the next.
Index weights_stride(const AnyArray& w, Index R, Index n);

void at_least_one(Index count, const char* what);
// A block of columns has one of the compiled widths.
Index width(std::size_t B);
void check_rows(Index begin, Index end, Index n);

// Zeros for a kernel to work in. Only arrays without a row can ask for more than the limit.
template <class T>
std::vector<T> scratch_of(Index count) {
    check(count <= Index(1) << 36, "sizes beyond any memory");
    return std::vector<T>(static_cast<std::size_t>(count));
}

// Check that the numbers of an array are from `least` to `end` - 1.
template <class A>
void check_numbers(const A& numbers, const char* name, Index least, Index end) {
    if (numbers.size() == 0) return;
    auto low = numbers.data()[0], high = low;
    for (std::size_t i = 1; i < numbers.size(); ++i) {
        const auto number = numbers.data()[i];
        low = number < low ? number : low;
        high = number > high ? number : high;
    }
    if (low < least || high >= end) refuse(name + std::string(" is beyond its table"));
}

// The numbers of an array of ids, which are 1, 2 or 4 bytes without a sign.
Ids ids_of(const AnyArray& array, const char* name);

// Check that arrays of ids, of which the second may be missing, have one type.
void check_types(const IdArray& leaf, const MaybeIds& other, const char* name);

// Check that the largest id is inside a table of M rows, in a pass that vectorises.
void check_ids(Ids ids, Index count, Index M);
// The same for ids that count from an offset.
void check_ids(Ids ids, Index count, Index offset, Index M);

void check_first(const First& first, Index R, Index O, Index K);

// Check that edges go from 0 to `end`, and up by at least `least` from one to the next.
void check_edges(const Edges& edges, const char* name, Index count, Index end, Index least);

// The leaves of a step. Ids are checked apart, where the lock is not held.
StepLeaves step(const IdArray& leaf, const First& first, Index O, Index K);

// All trees of an ensemble: the leaf of row j in tree r is offset[r] + leaf[r, j] of M in all.
StepLeaves forest(const IdArray& leaf, const First& first, const Edges& offset, Index M, Index O, Index K);

// Steps of one tree and one output each, with M leaves in all; ids are those of rows begin .. end - 1.
StepLeaves steps(const IdArray& leaf, const Edges& edges, Index begin, Index end, Index M);

template <class A>
auto pointer(const std::optional<A>& a) -> decltype(a->data()) {
    return a ? a->data() : nullptr;
}

}  // namespace leaftrace
