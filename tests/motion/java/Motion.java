import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A Java program whose native code has memory in motion. The virtual machine takes SIGSEGV for null checks, safepoints and the ends
 * of stacks, and SIGBUS for mapped files that became shorter.
 */
public final class Motion {
    /** Of every kind that a run must have seen. */
    private static final long ENOUGH = 50;

    private static final AtomicLong nulls = new AtomicLong();
    private static final AtomicLong overflows = new AtomicLong();
    private static final AtomicLong collections = new AtomicLong();
    private static final AtomicLong truncations = new AtomicLong();
    private static volatile boolean stop;
    private static volatile long sink;

    private int value = 1;

    private static native int run(String[] arguments);

    private interface Work {
        void once() throws Exception;
    }

    private static Thread often(Work work) {
        Thread thread = new Thread(() -> {
            try {
                while (!stop) {
                    work.once();
                }
            } catch (Throwable problem) {
                problem.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Long enough for the compiler to leave the null check to the processor. */
    private static int sum(Motion[] many) {
        int sum = 0;
        for (Motion one : many) {
            sum += one.value;
        }
        return sum;
    }

    private static int dig(int depth) {
        return dig(depth + 1) + depth;
    }

    private static void dereference(Motion[] many) throws InterruptedException {
        for (int i = 0; i < 1000; i++) {
            sink += sum(many);
        }
        Motion last = many[many.length - 1];
        many[many.length - 1] = null;
        try {
            sink += sum(many);
            throw new AssertionError("null was no null");
        } catch (NullPointerException expected) {
            nulls.incrementAndGet();
        }
        many[many.length - 1] = last;
        Thread.sleep(0, 100_000);
    }

    private static void overflow() throws InterruptedException {
        try {
            sink += dig(0);
        } catch (StackOverflowError expected) {
            overflows.incrementAndGet();
        }
        Thread.sleep(1);
    }

    private static void collect() throws InterruptedException {
        byte[][] garbage = new byte[100][];
        for (int i = 0; i < garbage.length; i++) {
            garbage[i] = new byte[1000];
        }
        sink += garbage[7].length;
        System.gc();
        collections.incrementAndGet();
        Thread.sleep(2);
    }

    /** The file stays open: where it was closed behind each access, errors that come late kept that from being done. */
    private static void truncate(RandomAccessFile file) throws Exception {
        file.setLength(8192);
        MappedByteBuffer mapped = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 8192);
        mapped.put(5000, (byte) 1);
        file.setLength(0);
        sink += mapped.get(5000);
        sink += mapped.get(5001);
        // In compiled code the error comes a little later than the access.
        Thread.sleep(1);
    }

    private static void truncateAndSee(RandomAccessFile file) throws Exception {
        try {
            truncate(file);
            throw new AssertionError("bytes beyond the end of a file were read");
        } catch (InternalError expected) {
            truncations.incrementAndGet();
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.load(System.getProperty("motion.library"));
        Motion[] many = new Motion[1000];
        for (int i = 0; i < many.length; i++) {
            many[i] = new Motion();
        }
        Path path = Files.createTempFile("pagewire-motion-", null);
        path.toFile().deleteOnExit();
        RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw");
        often(() -> dereference(many));
        often(Motion::overflow);
        often(Motion::collect);
        Thread truncating = often(() -> truncateAndSee(file));

        int status = run(arguments);
        long limit = System.nanoTime() + 60_000_000_000L;
        for (AtomicLong counter : new AtomicLong[] {nulls, overflows, collections, truncations}) {
            while (counter.get() < ENOUGH) {
                if (System.nanoTime() > limit) {
                    throw new AssertionError("Java's own work does not come forward");
                }
                Thread.sleep(1);
            }
        }
        stop = true;
        // It would make the file anew.
        truncating.join();
        System.out.println("Java: " + nulls + " null pointers, " + overflows + " full stacks, " + collections
            + " collections, " + truncations + " truncated files");
        Files.deleteIfExists(path);
        System.exit(status);
    }
}
