// Soft choices of splits, compiled once for each instruction set like kernels.cpp, and under the same rule: nothing
// from the standard library that the linker could share between the copies.
#include "choice.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {

template <class Real>
void choice(const Choice<Real>& tree, const ChoiceRoom<Real>& room, Index B) {
    if (B == 1) return choice_terms<1>(tree, room);
    if (B == 8) return choice_terms<8>(tree, room);
    choice_terms<32>(tree, room);
}

template void choice(const Choice<float>&, const ChoiceRoom<float>&, Index);
template void choice(const Choice<double>&, const ChoiceRoom<double>&, Index);

}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
