import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs many of Apache Kafka's command-line tools in one JVM, one after the other.
 *
 * Request:  int words, then each word as int length and bytes (UTF-8): the main class, its arguments;
 *           int length and bytes: standard input.
 * Response: int exit code; int length and bytes: standard output; the same for standard error.
 *
 * A tool ends as it would in a JVM of its own: with its first exit code, after its shutdown hooks.
 * Threads that it leaves running, such as those of a client that it did not close, print nothing.
 * The server ends when its standard input does.
 */
public final class ToolServer {
    /** Unwinds the stack of a tool that asked to exit. */
    private static final class Ended extends Error {
        private Ended() {
            super("exit", null, false, false);
        }
    }

    /** Writes what the threads of one tool print, and drops what those of earlier tools do. */
    private final class Printed extends OutputStream {
        private final OutputStream to;

        private Printed(OutputStream to) {
            this.to = to;
        }

        @Override
        public void write(int one) throws IOException {
            if (isOfThisTool()) {
                to.write(one);
            }
        }

        @Override
        public void write(byte[] bytes, int from, int count) throws IOException {
            if (isOfThisTool()) {
                to.write(bytes, from, count);
            }
        }
    }

    /** The group that the threads of a tool inherit from the one that runs its main(). */
    private static final class Threads extends ThreadGroup {
        private Threads() {
            super("tool");
        }
    }

    private final Threads threads = new Threads();
    private Integer code;
    private final List<Runnable> hooks = new ArrayList<>();
    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private final ByteArrayOutputStream err = new ByteArrayOutputStream();

    public static void main(String[] args) throws Exception {
        DataInputStream requests = new DataInputStream(
            new BufferedInputStream(new FileInputStream(FileDescriptor.in)));
        DataOutputStream responses = new DataOutputStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (EOFException ended) {
                System.exit(0); // not halt: the JVM may have an archive of its classes to write
                return;
            }
            String[] words = new String[count];
            for (int i = 0; i < count; i++) {
                words[i] = new String(read(requests), "UTF-8");
            }
            byte[] input = read(requests);
            ToolServer call = new ToolServer();
            call.run(words, input);
            responses.writeInt(call.code);
            write(responses, call.out);
            write(responses, call.err);
            responses.flush();
        }
    }

    private static byte[] read(DataInputStream in) throws Exception {
        return in.readNBytes(in.readInt());
    }

    private static void write(DataOutputStream to, ByteArrayOutputStream bytes) throws Exception {
        to.writeInt(bytes.size());
        bytes.writeTo(to);
    }

    private boolean isOfThisTool() {
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        while (group != null && !(group instanceof Threads)) {
            group = group.getParent();
        }
        return group == null || group == threads;
    }

    private void run(String[] words, byte[] input) throws Exception {
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(new PrintStream(new Printed(out), true));
        System.setErr(new PrintStream(new Printed(err), true));
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Thread main = new Thread(threads, () -> runMain(words), "main");
        main.start();
        main.join();
    }

    private void runMain(String[] words) {
        String[] arguments = new String[words.length - 1];
        System.arraycopy(words, 1, arguments, 0, arguments.length);
        int atEnd = 0;
        try {
            Class.forName(words[0]).getMethod("main", String[].class)
                .invoke(null, (Object) arguments);
        } catch (InvocationTargetException failed) {
            // As `java` does: the trace of an exception that main() did not catch, and code 1.
            if (!(failed.getCause() instanceof Ended) && code == null) {
                System.err.print("Exception in thread \"main\" ");
                failed.getCause().printStackTrace();
                atEnd = 1;
            }
        } catch (ReflectiveOperationException missing) {
            System.err.println("Error: Could not find or load main class " + words[0]);
            atEnd = 1;
        }
        end(atEnd);
    }

    private void exit(int status) {
        end(status);
        throw new Ended();
    }

    /**
     * As the end of a JVM: the first exit code counts, the shutdown hooks run. What the tool would
     * print after that is dropped.
     */
    private synchronized void end(int status) {
        if (code != null) {
            return;
        }
        code = status;
        hooks.forEach(Runnable::run);
        System.out.flush();
        System.err.flush();
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
        System.setErr(new PrintStream(OutputStream.nullOutputStream()));
    }
}
