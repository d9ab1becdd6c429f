/* pagewire/checkpoint.hpp: checkpoints in files. A part of pagewire.hpp. */
#ifndef PAGEWIRE_CHECKPOINT_HPP
#define PAGEWIRE_CHECKPOINT_HPP

#include <pagewire/remote.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

/** Memory that is saved and restored. token: of exactly these bytes, if peers write them; it must stay until the checkpoint was opened. */
using memory = pw_memory;
/** What was saved. */
using saved = pw_saved;

/** What was restored. */
struct restored {
    std::uint64_t number;
    /** What the program had saved beside the memory. */
    std::string note;
};

/** Checkpoints of memory of this process, in a file. It ends before its node. */
class checkpoint {
public:
    /** Saves the memory, with a note of the program's own. */
    pw::saved save(std::string_view note = {})
    {
        pw::saved now;
        check(pw_checkpoint_save(opened_.get(), note.data(), note.size(), &now));
        return now;
    }

    /** Saves together with all processes of the job. remotes: that this process puts to. */
    pw::saved save_together(const std::vector<const remote *> &remotes, std::string_view note = {})
    {
        std::vector<pw_remote *> peers;
        for (const remote *peer : remotes)
            peers.push_back(peer->get());
        pw::saved now;
        check(pw_checkpoint_save_together(opened_.get(), peers.data(), peers.size(), note.data(), note.size(), &now));
        return now;
    }

    /** Restores the memory from a checkpoint; 0 is the last one. Nothing: there is none yet. A note of more than most_note bytes is cut. */
    std::optional<pw::restored> restore(std::uint64_t number = 0, std::size_t most_note = 4096)
    {
        return restored_by(most_note, [&](void *note, std::size_t size, pw_restored *to) {
            return pw_checkpoint_restore(opened_.get(), number, note, size, to);
        });
    }

    /** Restores together with all processes of the job, from the last checkpoint that all have. */
    std::optional<pw::restored> restore_together(std::size_t most_note = 4096)
    {
        return restored_by(most_note, [&](void *note, std::size_t size, pw_restored *to) {
            return pw_checkpoint_restore_together(opened_.get(), note, size, to);
        });
    }

private:
    friend class node;

    explicit checkpoint(pw_checkpoint *opened) noexcept : opened_(opened) {}

    template <class Restore> static std::optional<pw::restored> restored_by(std::size_t most, Restore restore)
    {
        std::string note(most, '\0');
        pw_restored there;
        check(restore(note.data(), note.size(), &there));
        if (there.number == 0)
            return std::nullopt;
        note.resize(std::min(most, static_cast<std::size_t>(there.note_length)));
        return pw::restored{there.number, std::move(note)};
    }

    detail::owned<pw_checkpoint, pw_checkpoint_close> opened_;
};

} // namespace pw

#endif /* PAGEWIRE_CHECKPOINT_HPP */
