// Bindings of the soft choices of splits.
#include "arguments.hpp"
#include "bindings.hpp"
#include "choice_arguments.hpp"

#include <cstdint>
#include <exception>
#include <memory>
#include <thread>

using namespace nanobind::literals;

namespace leaftrace {
namespace {

// Leaves numbers as the memory has them: the kernel writes before it reads, and zeros would be written for nothing.
template <class T>
struct Unset : std::allocator<T> {
    template <class U>
    struct rebind {
        using other = Unset<U>;
    };
    template <class U>
    void construct(U* at) noexcept {
        ::new (static_cast<void*>(at)) U;
    }
};
template <class T>
using Memory = std::vector<T, Unset<T>>;

// Memory of a thread that calls reuse, so that it is not asked for again for every tree.
struct Room {
    Memory<Index> places;
    Memory<std::int32_t> ints;
    Memory<std::uint8_t> bytes;
    Memory<double> numbers;
    Memory<float> floats;
    Memory<double> doubles;

    Memory<float>& reals(float) { return floats; }
    Memory<double>& reals(double) { return doubles; }
    std::size_t bytes_held() const { return 8 * (numbers.size() + doubles.size()) + 4 * (floats.size() + ints.size()) + bytes.size(); }
};
thread_local Room thread_room;
constexpr std::size_t most_kept = std::size_t(1) << 26;  // more is given back after a call

// Parts for which the system has no thread left run on this one.
void run_parts(Body body, void* context, Index parts) {
    std::vector<std::thread> others;
    others.reserve(static_cast<std::size_t>(parts));
    Index part = 1;
    try {
        for (; part < parts; ++part) others.emplace_back(body, context, part);
    } catch (const std::exception&) {
    }
    body(context, 0);
    for (; part < parts; ++part) body(context, part);
    for (auto& thread : others) thread.join();
}

constexpr std::size_t line = 64;  // bytes of a cache line; vectors that lie across two of them take twice as long

// Hands out parts of a vector, each of which begins at a cache line. The vector has room for
// `most_parts` gaps between them.
template <class T>
struct Parts {
    T* next;

    explicit Parts(Memory<T>& all) : next(all.data()) {}

    T* take(Index count) {
        const auto beyond = reinterpret_cast<std::uintptr_t>(next) % line;
        T* part = next + (beyond ? (line - beyond) / sizeof(T) : 0);
        next = part + count;
        return part;
    }
};

constexpr Index most_parts = 32;  // of a vector

template <class T>
void grow(Memory<T>& all, Index count) {
    check(count <= Index(1) << 36, "sizes beyond any memory");
    const Index spare = most_parts * static_cast<Index>(line / sizeof(T));
    if (static_cast<Index>(all.size()) >= count + spare) return;
    all.clear();  // nothing is copied when it grows
    all.resize(static_cast<std::size_t>(count + spare));
}

Index candidates(Index bins, std::uint8_t kind) {
    if (kind == 1 && bins > 2) return 2 * bins - 3;
    if (kind == 2 && bins > 2) return bins;
    return bins - 1;
}

// What calls with one tree keep for those that follow: see ChoiceKept.
struct KeptChoices {
    std::vector<Index> shape;  // of the tree; empty before the first call
    Room room;

    std::size_t bytes_held() const { return room.bytes_held() + sizeof(Index) * (room.places.size() + shape.size()); }
};
thread_local KeptChoices thread_kept;  // of calls that keep nothing

// All sizes that say how what is kept is laid out.
template <class Real>
std::vector<Index> shape_of(const Choice<Real>& p) {
    std::vector<Index> shape{sizeof(Real), p.n, p.O, p.N, p.choices};
    for (Index f = 0; f < p.d; ++f) shape.insert(shape.end(), {p.sizes[f], p.kinds[f]});
    return shape;
}

template <class Real>
void lay_out_kept(Room& room, const Choice<Real>& p, ChoiceRoom<Real>& r) {
    const Index cells = r.cell[p.d], C = r.candidate[p.d];
    grow(room.places, p.L + 1);
    r.edges = Parts<Index>{room.places}.take(p.L + 1);
    grow(room.ints, p.n);
    r.rows = Parts<std::int32_t>{room.ints}.take(p.n);
    grow(room.bytes, p.N * cells + p.choices);
    Parts<std::uint8_t> bytes{room.bytes};
    r.orders = bytes.take(p.N * cells);
    r.chosen = bytes.take(p.choices);
    grow(room.numbers, p.choices * (1 + C));
    Parts<double> numbers{room.numbers};
    r.tau = numbers.take(p.choices);
    r.chances = numbers.take(p.choices * C);
    auto& reals = room.reals(Real());
    grow(reals, p.N * C * side_numbers * p.O);
    r.sides = Parts<Real>{reals}.take(p.N * C * side_numbers * p.O);
}

template <class Real>
ChoiceRoom<Real> lay_out(Room& room, KeptChoices& kept, const Choice<Real>& p, Index B) {
    ChoiceRoom<Real> r{};
    const Index S = 3 * p.O + 1, slots = p.N + p.L;
    grow(room.places, 2 * (p.d + 1) + p.L + p.threads + 1);
    Parts<Index> places{room.places};
    r.cell = places.take(p.d + 1);
    r.candidate = places.take(p.d + 1);
    r.leaves = places.take(p.L);
    r.shares = places.take(p.threads + 1);
    r.cell[0] = r.candidate[0] = 0;
    for (Index f = 0; f < p.d; ++f) {
        r.cell[f + 1] = r.cell[f] + p.sizes[f];
        r.candidate[f + 1] = r.candidate[f] + candidates(p.sizes[f], p.kinds[f]);
    }
    r.known = !kept.shape.empty();
    lay_out_kept(kept.room, p, r);
    const Index cells = r.cell[p.d], C = r.candidate[p.d];
    const Index counted = p.measured ? 0 : 2 * slots + p.L * (1 + cells);
    grow(room.ints, slots + p.n + p.N * (p.d + 1) + counted);
    Parts<std::int32_t> ints{room.ints};
    r.parent = ints.take(slots);
    r.place = ints.take(p.n);
    r.columns = ints.take(p.N * p.d);
    r.counts = ints.take(p.N);
    if (!p.measured) {
        r.below = ints.take(slots);
        r.first = ints.take(slots);
        r.leaf_at = ints.take(p.L);
        r.counts_of = ints.take(p.L * cells);
    }
    grow(room.bytes, (p.N + p.n + 1) * p.d + p.N * cells);
    Parts<std::uint8_t> bytes{room.bytes};
    r.active = bytes.take(p.N * p.d);
    r.codes = bytes.take(p.n * p.d);
    r.filled = bytes.take(p.N * cells);
    r.possible = bytes.take(p.d);
    grow(room.numbers, p.n * S + p.N * cells * S + slots * S + 5 * C + p.O + 2 * S + 256 + 5 * p.L);
    Parts<double> numbers{room.numbers};
    r.terms = numbers.take(p.n * S);
    r.sums = numbers.take(p.N * cells * S);
    r.slot_sums = numbers.take(slots * S);
    r.gain = numbers.take(C);
    r.own_gain = numbers.take(C);
    r.left_rows = numbers.take(C);
    r.right_rows = numbers.take(C);
    r.last_rows = numbers.take(C);
    r.slope = numbers.take(p.O);
    r.left = numbers.take(S);
    r.right = numbers.take(S);
    r.keys = numbers.take(256);
    r.squares = numbers.take(3 * p.L);
    r.leaf_rows = numbers.take(p.L);
    r.stay = numbers.take(p.L);
    auto& all = room.reals(Real());
    grow(all, 3 * p.N * cells * p.O * B + C * B + (4 + 2 * p.threads + p.N) * p.O * B + p.n * p.O * 2 * (1 + p.K));
    Parts<Real> reals{all};
    r.felt = reals.take(p.N * cells * p.O * B);
    r.pull = reals.take(2 * p.N * cells * p.O * B);
    r.effect = reals.take(C * B);
    r.all = reals.take(2 * p.O * B);
    r.part = reals.take(2 * p.threads * p.O * B);
    r.side = reals.take(2 * p.O * B);
    r.total = reals.take(p.N * p.O * B);
    r.factors = reals.take(p.n * p.O * 2 * (1 + p.K));
    return r;
}

// Check that every slot but the root is the child of exactly one node before it, and that choices go up by one.
template <class Real>
void check_nodes(const Choice<Real>& p) {
    std::vector<bool> seen(static_cast<std::size_t>(p.N + p.L));
    for (Index v = 0; v < p.N; ++v)
        for (const std::int32_t child : {p.left[v], p.right[v]}) {
            check(child > v && child < p.N + p.L, "a child that is no slot after its parent");
            check(!seen[static_cast<std::size_t>(child)], "a slot with two parents");
            seen[static_cast<std::size_t>(child)] = true;
        }
    for (Index v = 0; v < p.N; ++v) {
        const std::int32_t before = v ? p.choice[v - 1] : 0;
        check(p.choice[v] == before || (v && p.choice[v] == before + 1), "choices do not go up by one");
        check(p.column[v] >= -1 && p.column[v] < p.d, "a split by a column that is not there");
    }
}

template <class Real>
void check_bins(const Choice<Real>& p) {
    for (Index f = 0; f < p.d; ++f) check(p.sizes[f] >= 1 && p.sizes[f] <= 256 && p.kinds[f] <= 3, "bins of a column");
}

template <class Real>
void check_codes(const Choice<Real>& p, const std::uint8_t* codes, Index rows) {
    // Many rows side by side, so that the loop over them vectorises.
    const Index together = 64 * (p.d > 1 ? p.d : 1), all = rows * p.d;
    std::vector<std::uint8_t> last(static_cast<std::size_t>(together));
    for (Index i = 0; i < together; ++i) last[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(p.sizes[p.d > 1 ? i % p.d : 0] - 1);
    std::uint8_t beyond = 0;
    for (Index start = 0; start < all; start += together) {
        const Index count = all - start < together ? all - start : together;
        for (Index i = 0; i < count; ++i) beyond |= codes[start + i] > last[static_cast<std::size_t>(i)];
    }
    check(!beyond, "a code beyond the bins of its column");
}

// Only arrays without a row can ask for more than the limit; below it, products of sizes do not overflow.
template <class Real>
void check_sizes(const Choice<Real>& p, Index B) {
    double cells = 0;
    for (Index f = 0; f < p.d; ++f) cells += p.sizes[f];
    const double rows = static_cast<double>(p.n), nodes = static_cast<double>(p.N), sums = 3.0 * static_cast<double>(p.O) + 1;
    check(sums * (rows + nodes * cells * static_cast<double>(B)) <= 0x1p36, "sizes beyond any memory");
    check(p.n <= INT32_MAX, "more rows than 32 bits can count");
}

inline void check_leaves(const std::int32_t* leaf, Index rows, Index L) {
    const auto count = static_cast<std::uint32_t>(L);
    std::uint32_t beyond = 0;  // as wide as the ids, so that the loop vectorises
    for (Index j = 0; j < rows; ++j) beyond |= static_cast<std::uint32_t>(leaf[j]) >= count ? 1u : 0u;
    check(!beyond, "an id beyond its table");
}

template <class Real>
void run(const Choice<Real>& p, KeptChoices& kept, Index B) {
    check_nodes(p);
    check_bins(p);
    const auto shape = shape_of(p);
    check(kept.shape.empty() || kept.shape == shape, "choices that were kept of another tree");
    check_codes(p, p.codes, p.n);
    if (kept.shape.empty()) check_leaves(p.leaf, p.n, p.L);  // otherwise the order that was kept is read
    check_codes(p, p.query_codes, p.m);
    check_leaves(p.query_leaf, p.m, p.L);
    check_sizes(p, B);
    const auto room = lay_out(thread_room, kept, p, B);
#ifdef LEAFTRACE_X86
    const auto choice = current_isa == "avx512" ? avx512::choice<Real>
                        : current_isa == "avx2" ? avx2::choice<Real>
                                                : baseline::choice<Real>;
#else
    const auto choice = baseline::choice<Real>;
#endif
    choice(p, room, B);
    kept.shape = shape;
    if (thread_room.bytes_held() > most_kept) thread_room = Room();
}

// Run without an object that keeps anything.
template <class Real>
void run_once(const Choice<Real>& p, Index B) {
    thread_kept.shape.clear();
    run(p, thread_kept, B);
    if (thread_kept.bytes_held() > most_kept) thread_kept = KeptChoices();
}

using Codes = Array<const std::uint8_t, 2>;
using Ints = Array<const std::int32_t, 1>;

template <class Real>
void bind(nb::module_& m) {
    m.def("choice_terms",
          [](Codes codes, Ints leaf, Vector w, Vector drawn, Array<const double, 2> g, Array<const double, 2> h,
             Array<const double, 3> j, Array<const double, 3> k, Codes query_codes, Ints query_leaf,
             Array<const Real, 3> c, Ints sizes, Array<const std::uint8_t, 1> kinds, Ints left, Ints right, Ints column,
             Ints choice, Vector numbers, bool by_weight, bool newton, bool columns_sampled, bool rows_estimated, bool measured, Array<double, 1> shares, Index first, Index threads,
             Array<const Real, 3> scores, Array<Real, 3> abar, Array<Real, 2> out, KeptChoices* kept) {
              const Index n = codes.shape(0), d = codes.shape(1), m = query_codes.shape(0), N = left.shape(0);
              const Index K = abar.shape(1), O = c.shape(1), B = width(abar.shape(2));
              at_least_one(N, "inner nodes");
              at_least_one(O, "outputs of a leaf");
              at_least_one(d, "columns");
              check(1 <= threads && threads <= 1024, "threads");
              check(0 <= first && first <= K - O, "outputs of a tree beyond K");
              shaped(codes, "codes", n, d);
              shaped(leaf, "leaf", n);
              shaped(w, "w", n);
              shaped(drawn, "drawn", n);
              shaped(g, "g", n, O);
              shaped(h, "h", n, O);
              shaped(j, "j", n, O, K);
              shaped(k, "k", n, O, K);
              shaped(query_codes, "query_codes", m, d);
              shaped(query_leaf, "query_leaf", m);
              shaped(c, "c", m, O, B);
              shaped(sizes, "sizes", d);
              shaped(kinds, "kinds", d);
              shaped(left, "left", N);
              shaped(right, "right", N);
              shaped(column, "column", N);
              shaped(choice, "choice", N);
              shaped(numbers, "numbers", 10);
              shaped(shares, "shares", N + 1);
              shaped(scores, "scores", n, K, B);
              shaped(abar, "abar", n, K, B);
              shaped(out, "out", n, B);
              const double* x = numbers.data();
              const Choice<Real> p{n, m, d, K, O, N, N + 1, Index(choice.data()[N - 1]) + 1, first,
                                   codes.data(), query_codes.data(), leaf.data(), query_leaf.data(), w.data(),
                                   drawn.data(), g.data(), h.data(), j.data(), k.data(), c.data(), sizes.data(), kinds.data(), left.data(), right.data(), column.data(),
                                   choice.data(), x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], by_weight, newton, columns_sampled,
                                   rows_estimated, measured, shares.data(), scores.data(), abar.data(), out.data(), threads, run_parts};
              nb::gil_scoped_release release;
              kept ? run(p, *kept, B) : run_once(p, B);
          },
          "codes"_a.noconvert(), "leaf"_a.noconvert(), "w"_a.noconvert(), "drawn"_a.noconvert(), "g"_a.noconvert(),
          "h"_a.noconvert(), "j"_a.noconvert(), "k"_a.noconvert(), "query_codes"_a.noconvert(),
          "query_leaf"_a.noconvert(), "c"_a.noconvert(), "sizes"_a.noconvert(), "kinds"_a.noconvert(),
          "left"_a.noconvert(), "right"_a.noconvert(), "column"_a.noconvert(), "choice"_a.noconvert(),
          "numbers"_a.noconvert(), "by_weight"_a, "newton"_a, "columns_sampled"_a, "rows_estimated"_a, "measured"_a, "shares"_a.noconvert(), "first"_a, "threads"_a,
          "scores"_a.noconvert(), "abar"_a.noconvert(), "out"_a.noconvert(), "kept"_a.none() = nb::none());
}

}  // namespace

void bind_choice(nb::module_& m) {
    nb::class_<KeptChoices>(m, "KeptChoices").def(nb::init<>()).def_prop_ro("nbytes", &KeptChoices::bytes_held);
    bind<float>(m);
    bind<double>(m);
}

}  // namespace leaftrace
