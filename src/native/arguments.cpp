// The checks of the bindings' arguments.
#include "arguments.hpp"

#include <stdexcept>
#include <type_traits>

namespace leaftrace {

void refuse(const char* what) { throw std::invalid_argument(std::string("leaftrace kernel: ") + what); }
void refuse(const std::string& what) { refuse(what.c_str()); }
void refuse_type(const char* name, const char* what) {
    throw nb::type_error((std::string("leaftrace kernel: ") + name + what).c_str());
}

namespace {

// A shape as NumPy prints it.
template <class Size>
std::string shape_text(const Size* sizes, std::size_t axes) {
    std::string text;
    for (std::size_t i = 0; i < axes; ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
    return "(" + text + (axes == 1 ? ",)" : ")");
}

}  // namespace

void check_shape(const AnyArray& array, const char* name, const Index* sizes, std::size_t axes) {
    bool fits = array.axes == axes;
    for (std::size_t i = 0; fits && i < axes; ++i) fits = array.shape[i] == sizes[i];
    if (!fits)
        refuse(name + (" has shape " + shape_text(array.shape, array.axes)) + ", expected " + shape_text(sizes, axes));
    if (reinterpret_cast<std::uintptr_t>(array.data) % array.itemsize != 0)
        refuse(name + std::string(" is not aligned in memory; pass a copy of it"));
}

void check_axes(const AnyArray& array, const char* name, std::size_t least, std::size_t most) {
    if (array.axes < least || array.axes > most) refuse_type(name, " has another number of axes");
}

Index weights_stride(const AnyArray& w, Index R, Index n) {
    check_axes(w, "w", 1, 2);
    const Index sizes[] = {R, n};
    check_shape(w, "w", sizes + (2 - w.axes), w.axes);
    return w.axes == 2 ? n : 0;
}

void at_least_one(Index count, const char* what) {
    if (count < 1) refuse(std::string(what) + ": there must be at least one");
}

Index width(std::size_t B) {
    check(B == 1 || B == 8 || B == 32, "a block has 1, 8 or 32 columns");
    return static_cast<Index>(B);
}

void check_rows(Index begin, Index end, Index n) {
    check(0 <= begin && begin <= end && end <= n, "begin and end are not a range of the rows");
}

Ids ids_of(const AnyArray& array, const char* name) {
    const nb::dlpack::dtype type = array.dtype;
    const int bytes = type.bits / 8;
    if (type.code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt) || type.lanes != 1 ||
        (bytes != 1 && bytes != 2 && bytes != 4))
        refuse_type(name, " is not uint8, uint16 or uint32");
    return {static_cast<const unsigned char*>(array.data), bytes};
}

void check_types(const IdArray& leaf, const MaybeIds& other, const char* name) {
    const int bytes = ids_of(leaf, "leaf").bytes;
    if (other && ids_of(*other, name).bytes != bytes) refuse_type(name, " has another type than leaf");
}

void check_ids(Ids ids, Index count, Index M) {
    Index largest = 0;
    with_ids(ids, [&](const auto* id) {
        std::remove_const_t<std::remove_pointer_t<decltype(id)>> top = 0;
        for (Index i = 0; i < count; ++i) top = id[i] > top ? id[i] : top;
        largest = static_cast<Index>(top);
    });
    check(count == 0 || largest < M, "an id beyond its table");
}

void check_ids(Ids ids, Index count, Index offset, Index M) {
    check(0 <= offset && offset <= M, "an offset beyond its table");
    check_ids(ids, count, M - offset);
}

void check_first(const First& first, Index R, Index O, Index K) {
    at_least_one(O, "outputs of a leaf");
    shaped(first, "first", R);
    for (Index r = 0; r < R; ++r)
        check(first.data()[r] >= 0 && first.data()[r] <= K - O, "outputs of a tree beyond K");
}

void check_edges(const Edges& edges, const char* name, Index count, Index end, Index least) {
    shaped(edges, name, count + 1);
    const std::int64_t* at = edges.data();
    bool ok = at[0] == 0 && at[count] == end;
    for (Index i = 0; i < count; ++i) ok &= at[i] >= 0 && at[i] <= end && at[i + 1] >= at[i] && at[i + 1] - at[i] >= least;
    if (!ok) refuse(name + (" do not go up from 0 to " + std::to_string(end)));
}

StepLeaves step(const IdArray& leaf, const First& first, Index O, Index K) {
    const Index R = leaf.shape(0), n = leaf.shape(1);
    shaped(leaf, "leaf", R, n);
    check_first(first, R, O, K);
    return {ids_of(leaf, "leaf"), first.data(), R, n, n, O};
}

StepLeaves forest(const IdArray& leaf, const First& first, const Edges& offset, Index M, Index O, Index K) {
    const auto at = step(leaf, first, O, K);
    shaped(offset, "offset", at.R);
    for (Index r = 0; r < at.R; ++r) check_ids(at.tree(r), at.n, offset.data()[r], M);
    return at;
}

StepLeaves steps(const IdArray& leaf, const Edges& edges, Index begin, Index end, Index M) {
    const Index R = leaf.shape(0), n = leaf.shape(1);
    shaped(leaf, "leaf", R, n);
    check_rows(begin, end, n);
    check_edges(edges, "edges", R, M, 1);
    const StepLeaves at{ids_of(leaf, "leaf"), nullptr, R, n, n, 1};
    for (Index r = 0; r < R; ++r) check_ids(at.tree(r) + begin, end - begin, edges.data()[r + 1] - edges.data()[r]);
    return at;
}

}  // namespace leaftrace
