#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "headrace/chat.h"
#include "headrace/grammar.h"
#include "headrace/text.h"

namespace headrace::chat {

/// What reads and writes the texts of an installed model. Each part is loaded when it is first
/// asked for, and again if that failed. Any thread may call any method.
class ModelText {
 public:
  explicit ModelText(std::string folder) : folder_(std::move(folder)) {}

  std::shared_ptr<const Tokenizer> tokenizer() {
    const MutexLock lock(mutex_);
    if (tokenizer_ == nullptr) tokenizer_ = Tokenizer::load(folder_);
    return tokenizer_;
  }

  /// For the tokenizer's vocabulary.
  std::shared_ptr<const GrammarCompiler> grammars() {
    const std::shared_ptr<const Tokenizer> with = tokenizer();
    const MutexLock lock(mutex_);
    if (grammars_ == nullptr) {
      grammars_ = std::make_shared<const GrammarCompiler>(with->token_bytes());
    }
    return grammars_;
  }

  std::shared_ptr<const ChatTemplates> templates() {
    const MutexLock lock(mutex_);
    if (templates_ == nullptr) templates_ = ChatTemplates::load(folder_);
    return templates_;
  }

 private:
  const std::string folder_;
  Mutex mutex_;
  std::shared_ptr<const Tokenizer> tokenizer_ HEADRACE_GUARDED_BY(mutex_);
  std::shared_ptr<const GrammarCompiler> grammars_ HEADRACE_GUARDED_BY(mutex_);
  std::shared_ptr<const ChatTemplates> templates_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::chat
