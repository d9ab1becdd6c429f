/* pagewire/mapped_file.hpp: files whose pages peers access. A part of pagewire.hpp. */
#ifndef PAGEWIRE_MAPPED_FILE_HPP
#define PAGEWIRE_MAPPED_FILE_HPP

#include <pagewire/remote.hpp>

#include <cstdint>

namespace pw {

/** A file as exported memory: nothing is read in, and what peers write goes to the file. It ends before its node, and its tokens with it. */
class mapped_file {
public:
    /** Bytes of it: as many as it had when it was mapped. */
    std::uint64_t length() const { return pw_mapped_file_length(mapped_.get()); }

    /** Makes a token of bytes of it, by default of all. Throws PW_ENGINE: it is not writable, and the rights are more than to read. */
    token export_memory(rights given, std::uint64_t offset = 0, std::uint64_t length = PW_TO_END)
    {
        token made;
        check(pw_mapped_file_export(mapped_.get(), offset, length, static_cast<std::uint32_t>(given), &made));
        return made;
    }

    /** Waits until what peers have written is on its device. */
    void sync() { check(pw_mapped_file_sync(mapped_.get())); }

private:
    friend class node;

    explicit mapped_file(pw_mapped_file *mapped) noexcept : mapped_(mapped) {}

    detail::owned<pw_mapped_file, pw_mapped_file_close> mapped_;
};

} // namespace pw

#endif /* PAGEWIRE_MAPPED_FILE_HPP */
