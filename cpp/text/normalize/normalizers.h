#pragma once

// The kinds of normalizers, for make_normalizer and decoders.

#include <memory>
#include <string>
#include <vector>

#include "text/normalize/charsmap.h"
#include "text/normalize/normalizer.h"
#include "text/regex/regex.h"
#include "text/unicode/normal_forms.h"

namespace headrace::text {

using NormalizerPtr = std::unique_ptr<const Normalizer>;

struct BertOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

NormalizerPtr make_sequence(std::vector<NormalizerPtr> steps);
NormalizerPtr make_prepend(std::string prefix);
NormalizerPtr make_replace(std::shared_ptr<const Regex> pattern, std::string content);
NormalizerPtr make_form(NormalForm form);
NormalizerPtr make_bert(const BertOptions& options);
NormalizerPtr make_lowercase();
NormalizerPtr make_strip(bool left, bool right);
NormalizerPtr make_strip_accents();
NormalizerPtr make_nmt();
NormalizerPtr make_precompiled(Charsmap map);
NormalizerPtr make_byte_level();

}  // namespace headrace::text
