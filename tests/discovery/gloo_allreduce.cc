// An allreduce among processes with gloo's ibverbs transport, verified: gloo_allreduce RANKS. Each rank is a child.
//
// gloo_allreduce RANKS RANK DIRECTORY is one rank, which meets the others in the directory and gives a lost one up after three seconds:
// a role of fail-each/gloo.toml.
#include <gloo/algorithm.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

static int run(int rank, int ranks, const std::string &directory, std::chrono::milliseconds patience)
{
	// An empty name: gloo lists the devices itself and takes the first.
	auto device = gloo::transport::ibverbs::CreateDevice({ "", 1, 0 });
	auto store = std::make_shared<gloo::rendezvous::FileStore>(directory);
	auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);

	context->setTimeout(patience);
	context->connectFullMesh(*store, device);
	for (int count : { 1, 1000, 1 << 20 }) {
		auto &values = *new std::vector<long>(count);

		for (int i = 0; i < count; i++)
			values[i] = static_cast<long>(i) * (rank + 1);
		/* Never destroyed: its destructor ends the program where a completion of its last message is still to come. */
		auto &allreduce = *new gloo::AllreduceRingChunked<long>(context, { values.data() }, count);
		allreduce.run();
		for (int i = 0; i < count; i++)
			if (values[i] != static_cast<long>(i) * ranks * (ranks + 1) / 2) {
				std::fprintf(stderr, "rank %d: element %d of %d is %ld\n", rank, i, count, values[i]);
				return 1;
			}
	}
	/* Nobody ends before everybody has its last completion, since a message to a process that has gone fails. */
	store->set("done" + std::to_string(rank), { 1 });
	for (int other = 0; other < ranks; other++)
		store->wait({ "done" + std::to_string(other) }, std::chrono::seconds(30));
	usleep(300 * 1000);
	std::fflush(nullptr);
	_exit(0);
}

static int run_alone(int rank, int ranks, const std::string &directory)
{
	try {
		return run(rank, ranks, directory, std::chrono::seconds(3));
	} catch (const std::exception &error) {
		std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
		// gloo's threads still run.
		_exit(3);
	}
}

int main(int count, char **arguments)
{
	if (count == 4)
		return run_alone(std::atoi(arguments[2]), std::atoi(arguments[1]), arguments[3]);

	char directory[] = "/tmp/pagewire-gloo-XXXXXX";
	int ranks = count > 1 ? std::atoi(arguments[1]) : 2, failed = 0, status;

	if (ranks < 2 || !mkdtemp(directory))
		return 2;
	for (int rank = 0; rank < ranks; rank++)
		if (fork() == 0)
			_exit(run(rank, ranks, directory, std::chrono::seconds(30)));
	while (wait(&status) > 0)
		failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	if (std::system(("rm -r " + std::string(directory)).c_str()) != 0)
		failed = 1;
	if (!failed)
		std::printf("gloo: allreduce of 1 to 1048576 elements among %d processes verified\n", ranks);
	return failed;
}
