// Soft choices of splits, compiled once for each instruction set like kernels.cpp, and under the same rule: nothing
// from the standard library that the linker could share between the copies.
#include "choice.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {

template <class Real>
void choice(const Choice<Real>& tree, const ChoiceRoom<Real>& room, Index B) {
    const bool one = tree.O == 1;
    if (B == 1) return one ? choice_terms<1, true>(tree, room) : choice_terms<1, false>(tree, room);
    if (B == 8) return one ? choice_terms<8, true>(tree, room) : choice_terms<8, false>(tree, room);
    one ? choice_terms<32, true>(tree, room) : choice_terms<32, false>(tree, room);
}

template void choice(const Choice<float>&, const ChoiceRoom<float>&, Index);
template void choice(const Choice<double>&, const ChoiceRoom<double>&, Index);

}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
