#pragma once

#include "cuda/kernels/quant/quant_layout.h"
#include "cuda/kernels/rows/embed.h"

namespace headrace::cuda {

struct QuantEmbedArgs {
  EmbedArgs embed;  ///< whose table is `layout` at embed.table.data
  QuantLayout layout;
};

/// embed(), rounded to out's dtype.
void quant_embed(const QuantEmbedArgs& args, Stream stream);

}  // namespace headrace::cuda
