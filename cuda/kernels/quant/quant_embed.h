#pragma once

#include "cuda/kernels/embed.h"
#include "cuda/kernels/quant/quant_layout.h"

namespace headrace::cuda {

struct QuantEmbedArgs {
  EmbedArgs embed;  ///< whose table is `layout` at embed.table.data
  QuantLayout layout;
};

/// out[i] = table[token_ids[i]], rounded to out's dtype.
void quant_embed(const QuantEmbedArgs& args, Stream stream);

}  // namespace headrace::cuda
