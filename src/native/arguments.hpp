// Arguments of the bindings: types of arrays, and the checks that run before a kernel reads one. A type that does not
// fit (numbers, axes, order in memory) is a TypeError of nanobind; everything else is a ValueError from here.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <stdexcept>
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

[[noreturn]] inline void refuse(const std::string& what) {
    throw std::invalid_argument("leaftrace kernel: " + what);
}
inline void check(bool ok, const char* what) {
    if (!ok) refuse(what);
}

// A shape as NumPy prints it.
inline std::string shape_text(const std::vector<Index>& sizes) {
    std::string text;
    for (const Index size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
    return "(" + text + (sizes.size() == 1 ? ",)" : ")");
}

// Check the sizes of an array, and that its numbers begin at a multiple of their size.
template <class A, class... N>
void shaped(const A& array, const char* name, N... sizes) {
    std::size_t i = 0;
    const bool fits = array.ndim() == sizeof...(N) && ((array.shape(i++) == static_cast<std::size_t>(sizes)) && ...);
    if (!fits) {
        std::vector<Index> found;
        for (std::size_t axis = 0; axis < array.ndim(); ++axis) found.push_back(static_cast<Index>(array.shape(axis)));
        refuse(name + (" has shape " + shape_text(found)) + ", expected " + shape_text({static_cast<Index>(sizes)...}));
    }
    if (reinterpret_cast<std::uintptr_t>(array.data()) % array.itemsize() != 0)
        refuse(name + std::string(" is not aligned in memory; pass a copy of it"));
}

// Check the number of axes of an array whose type leaves it open.
template <class A>
void check_axes(const A& array, const char* name, std::size_t least, std::size_t most) {
    if (array.ndim() < least || array.ndim() > most)
        throw nb::type_error((std::string("leaftrace kernel: ") + name + " has another number of axes").c_str());
}

// Weights are (n), or (R, n) if trees drew rows differently. Gives the stride from one tree to the next.
template <class A>
Index weights_stride(const A& w, Index R, Index n) {
    check_axes(w, "w", 1, 2);
    if (w.ndim() == 2)
        shaped(w, "w", R, n);
    else
        shaped(w, "w", n);
    return w.ndim() == 2 ? n : 0;
}

inline void at_least_one(Index count, const char* what) {
    if (count < 1) refuse(std::string(what) + ": there must be at least one");
}
// A block of columns has one of the compiled widths.
inline Index width(std::size_t B) {
    check(B == 1 || B == 8 || B == 32, "a block has 1, 8 or 32 columns");
    return static_cast<Index>(B);
}
inline void check_rows(Index begin, Index end, Index n) {
    check(0 <= begin && begin <= end && end <= n, "begin and end are not a range of the rows");
}

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
template <class A>
Ids ids_of(const A& array, const char* name) {
    const nb::dlpack::dtype type = array.dtype();
    const int bytes = type.bits / 8;
    if (type.code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt) || type.lanes != 1 ||
        (bytes != 1 && bytes != 2 && bytes != 4))
        throw nb::type_error((std::string("leaftrace kernel: ") + name + " is not uint8, uint16 or uint32").c_str());
    return {static_cast<const unsigned char*>(array.data()), bytes};
}

// Check that arrays of ids, of which the second may be missing, have one type.
inline void check_types(const IdArray& leaf, const MaybeIds& other, const char* name) {
    const int bytes = ids_of(leaf, "leaf").bytes;
    if (other && ids_of(*other, name).bytes != bytes)
        throw nb::type_error((std::string("leaftrace kernel: ") + name + " has another type than leaf").c_str());
}

// Check that the largest id is inside a table of M rows, in a pass that vectorises.
inline void check_ids(Ids ids, Index count, Index M) {
    Index largest = 0;
    with_ids(ids, [&](const auto* id) {
        std::remove_const_t<std::remove_pointer_t<decltype(id)>> top = 0;
        for (Index i = 0; i < count; ++i) top = id[i] > top ? id[i] : top;
        largest = static_cast<Index>(top);
    });
    check(count == 0 || largest < M, "an id beyond its table");
}

// The same for ids that count from an offset.
inline void check_ids(Ids ids, Index count, Index offset, Index M) {
    check(0 <= offset && offset <= M, "an offset beyond its table");
    check_ids(ids, count, M - offset);
}

inline void check_first(const First& first, Index R, Index O, Index K) {
    at_least_one(O, "outputs of a leaf");
    shaped(first, "first", R);
    for (Index r = 0; r < R; ++r)
        check(first.data()[r] >= 0 && first.data()[r] <= K - O, "outputs of a tree beyond K");
}

// Check that edges go from 0 to `end`, and up by at least `least` from one to the next.
inline void check_edges(const Edges& edges, const char* name, Index count, Index end, Index least) {
    shaped(edges, name, count + 1);
    const std::int64_t* at = edges.data();
    bool ok = at[0] == 0 && at[count] == end;
    for (Index i = 0; i < count; ++i) ok &= at[i] >= 0 && at[i] <= end && at[i + 1] >= at[i] && at[i + 1] - at[i] >= least;
    if (!ok) refuse(name + (" do not go up from 0 to " + std::to_string(end)));
}

// The leaves of a step. Ids are checked apart, where the lock is not held.
inline StepLeaves step(const IdArray& leaf, const First& first, Index O, Index K) {
    const Index R = leaf.shape(0), n = leaf.shape(1);
    shaped(leaf, "leaf", R, n);
    check_first(first, R, O, K);
    return {ids_of(leaf, "leaf"), first.data(), R, n, n, O};
}

// All trees of an ensemble: the leaf of row j in tree r is offset[r] + leaf[r, j] of M in all.
inline StepLeaves forest(const IdArray& leaf, const First& first, const Edges& offset, Index M, Index O, Index K) {
    const auto at = step(leaf, first, O, K);
    shaped(offset, "offset", at.R);
    for (Index r = 0; r < at.R; ++r) check_ids(at.tree(r), at.n, offset.data()[r], M);
    return at;
}

// Steps of one tree and one output each, with M leaves in all; ids are those of rows begin .. end - 1.
inline StepLeaves steps(const IdArray& leaf, const Edges& edges, Index begin, Index end, Index M) {
    const Index R = leaf.shape(0), n = leaf.shape(1);
    shaped(leaf, "leaf", R, n);
    check_rows(begin, end, n);
    check_edges(edges, "edges", R, M, 1);
    const StepLeaves at{ids_of(leaf, "leaf"), nullptr, R, n, n, 1};
    for (Index r = 0; r < R; ++r) check_ids(at.tree(r) + begin, end - begin, edges.data()[r + 1] - edges.data()[r]);
    return at;
}

template <class A>
auto pointer(const std::optional<A>& a) -> decltype(a->data()) {
    return a ? a->data() : nullptr;
}

}  // namespace leaftrace
