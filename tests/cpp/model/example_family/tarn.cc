#include "model/blocks/states/conv_block.h"
#include "model/families/family.h"
#include "model/families/keys/state_keys.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

// Every layer but the last of each group keeps a state instead of keys and values.
void read_tarn(ConfigReader& reader, ModelConfig& config) {
  const int64_t group = reader.integer("group", 4, 2, 64);
  read_state_layers(
      reader, {"short_conv"}, [group](int32_t layer) { return (layer + 1) % group != 0; }, config);
  config.state.conv_kernel = read_conv_kernel(reader, "conv_rows", 3);
}

// A mixer lists its tensors and says what it keeps: the block does the rest.
std::unique_ptr<ConvSources> list_conv(const ModelConfig& config, const LayerNaming& naming) {
  const int64_t hidden = config.hidden_size;
  auto out = std::make_unique<ConvSources>();
  out->conv = {.channels = config.hidden_size, .kernel = config.state.conv_kernel};
  out->in = naming.linear(
      "conv_in", {{"mix.open", hidden}, {"mix.close", hidden}, {"mix.x", hidden}}, hidden, false);
  out->weight =
      list_taps(naming.own("taps"), naming.stored("mix.taps"), hidden, config.state.conv_kernel);
  out->out = naming.linear("conv_out", {{"mix.out", hidden}}, hidden, false);
  return out;
}

LayerSources list_tarn_layer(const ModelConfig& config, const LayerNaming& naming) {
  LayerSources layer = list_llama_layer(config, naming);
  if (config.state.has(naming.layer())) layer.mixer = list_conv(config, naming);
  return layer;
}

}  // namespace

const Family& tarn_family() {
  static const Family kFamily{
      .model_type = "tarn",
      .architectures = {"TarnForCausalLM"},
      .defaults = {.num_layers = 12, .num_kv_heads = 8},
      .read = read_tarn,
      .list_layer = list_tarn_layer,
  };
  return kFamily;
}

}  // namespace headrace
