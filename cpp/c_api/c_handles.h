#pragma once

#include <memory>

#include "headrace/c.h"
#include "headrace/engine.h"
#include "headrace/output_selector.h"
#include "headrace/token_constraint.h"

// What the opaque handles of headrace/c.h are.

struct headrace_engine {
  headrace::Engine engine;
};

struct headrace_request {
  headrace::Request request;
  headrace::ResultQueue queue;
};

struct headrace_grammar {
  std::shared_ptr<headrace::TokenConstraint> constraint;
};

struct headrace_selector {
  headrace::OutputSelector selector;
};
