# cmake -DROOT=... -DHEADER=... -DNAME=... -DOUT=... -P InterfaceHash.cmake: writes a C++ header that
# holds, as NAME, a hash of HEADER and of all headers under ROOT and ROOT/include that it includes,
# and OUT.d, which names them. Two libraries with the same number were compiled from the same ones.

cmake_minimum_required(VERSION 3.25)  # run as a script, it has no policies otherwise

set(found ${HEADER})
set(hashes "")
set(files "")
while(found)
  list(POP_FRONT found header)
  set(file ${ROOT}/${header})
  if(NOT EXISTS ${file})
    set(file ${ROOT}/include/${header})
  endif()
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "${header} is neither in ${ROOT} nor in ${ROOT}/include")
  endif()
  if(file IN_LIST files)
    continue()
  endif()
  list(APPEND files ${file})
  file(SHA256 ${file} hash)
  string(APPEND hashes "${header} ${hash}\n")
  file(STRINGS ${file} includes REGEX "^#include \"")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" include "${include}")
    list(APPEND found ${include})
  endforeach()
endwhile()

string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${OUT} "// Made by cmake/InterfaceHash.cmake from ${HEADER} and what it includes.
#pragma once

#include <cstdint>

namespace headrace {

inline constexpr uint64_t ${NAME} = 0x${hash};

}  // namespace headrace
")
list(JOIN files " " files)
file(WRITE ${OUT}.d "${OUT}: ${files}\n")
