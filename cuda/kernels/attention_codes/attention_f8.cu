#include "cuda/kernels/attention_codes/attend_codes.cuh"

namespace headrace::cuda {

template void attention_codes_short<CodeF8>(const AttentionArgs& args, Stream stream);
template void attention_codes_long<CodeF8>(const AttentionArgs& args, Stream stream);

}  // namespace headrace::cuda
