// Blocks of B columns as vector units. Included once for each instruction set.
#pragma once
#include "kernels.hpp"

#if defined(__AVX512F__)
#define LT_NATIVE 64
#elif defined(__AVX__)
#define LT_NATIVE 32
#else
#define LT_NATIVE 16
#endif

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// B numbers side by side are N units, each as wide as the machine's registers. With plain loops the compiler
// checks for overlapping arrays at every row, or unrolls without vectorising.

template <class Real, int B>
struct Lanes {
#if defined(__GNUC__)
    static constexpr int bytes = B * sizeof(Real) < LT_NATIVE ? B * sizeof(Real) : LT_NATIVE;
    typedef Real Unit __attribute__((vector_size(bytes), aligned(sizeof(Real)), may_alias));
#else
    using Unit = Real;
#endif
    static constexpr int N = B * sizeof(Real) / sizeof(Unit);
};
template <class Real>
struct Lanes<Real, 1> {
    using Unit = Real;
    static constexpr int N = 1;
};
template <int B, class Real>
LT_INLINE auto units(const Real* p) {
    return reinterpret_cast<const typename Lanes<Real, B>::Unit*>(p);
}
template <int B, class Real>
LT_INLINE auto units(Real* p) {
    return reinterpret_cast<typename Lanes<Real, B>::Unit*>(p);
}
#define LT_UNITS(B) for (int i_ = 0; i_ < Lanes<Real, B>::N; ++i_)

// The ids of `count` rows from row `begin` on, in one type for all kernels.
LT_CALLED void copy_ids(Ids ids, Index begin, Index count, std::uint32_t* LT_RESTRICT to) {
    with_ids(ids, [&](const auto* from) {
        for (Index i = 0; i < count; ++i) to[i] = from[begin + i];
    });
}

// Call body(a, b) with two arrays of ids of one type: with one column in their own type, otherwise as they are.
template <int B, class Body>
LT_INLINE void with_ids_of(Ids a, Ids b, const Body& body) {
    if constexpr (B == 1)
        with_ids(a, [&](auto* id) { body(id, reinterpret_cast<decltype(id)>(b.data)); });
    else
        body(a, b);
}

// to (O, B) += from (O, B).
template <int B, class Real>
LT_INLINE void add(Real* LT_RESTRICT to_, const Real* LT_RESTRICT from_, Index O) {
    for (Index o = 0; o < O; ++o) {
        auto to = units<B>(to_ + o * B);
        auto from = units<B>(from_ + o * B);
        LT_UNITS(B) to[i_] += from[i_];
    }
}

// to (B) = a (B) + b (B); `to` may be `a`.
template <int B, class Real>
LT_INLINE void put_sum(Real* to_, const Real* a_, const Real* LT_RESTRICT b_) {
    auto to = units<B>(to_);
    auto a = units<B>(a_);
    auto b = units<B>(b_);
    LT_UNITS(B) to[i_] = a[i_] + b[i_];
}

// to (B) = from (B).
template <int B, class Real>
LT_INLINE void put(Real* LT_RESTRICT to_, const Real* LT_RESTRICT from_) {
    auto to = units<B>(to_);
    auto from = units<B>(from_);
    LT_UNITS(B) to[i_] = from[i_];
}

// to (B) += c from (B).
template <int B, class Real>
LT_INLINE void add_scaled(Real* LT_RESTRICT to_, Real c, const Real* LT_RESTRICT from_) {
    auto to = units<B>(to_);
    auto from = units<B>(from_);
    LT_UNITS(B) to[i_] += c * from[i_];
}

// to (B) += c from (B) + d other (B).
template <int B, class Real>
LT_INLINE void add_both(Real* LT_RESTRICT to_, Real c, const Real* LT_RESTRICT from_, Real d,
                        const Real* LT_RESTRICT other_) {
    auto to = units<B>(to_);
    auto from = units<B>(from_);
    auto other = units<B>(other_);
    LT_UNITS(B) to[i_] += c * from[i_] + d * other[i_];
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
