# find_package(pagewire) gives the target pagewire::pagewire, for pagewire.h and pagewire.hpp (C++17), and for pagewire_experimental.h and .hpp.
get_filename_component(_pagewire_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET pagewire::pagewire)
    add_library(pagewire::pagewire SHARED IMPORTED)
    set_target_properties(pagewire::pagewire PROPERTIES
        IMPORTED_LOCATION "${_pagewire_prefix}/lib/libpagewire.so.1"
        IMPORTED_SONAME "libpagewire.so.1"
        INTERFACE_INCLUDE_DIRECTORIES "${_pagewire_prefix}/include")
endif()
unset(_pagewire_prefix)
