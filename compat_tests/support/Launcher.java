import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FilterOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * Runs the main methods of Kafka's tools, or of programs with its clients, one after the other in one JVM, which saves
 * starting one for each.
 *
 * On standard input comes: number of arguments, the class and its arguments, the tool's standard input. Back goes: exit
 * status, what the tool printed, what it complained of. Numbers are ints, texts a length and UTF-8.
 */
public class Launcher {
    static class Exited extends RuntimeException {
        Exited() {
            super(null, null, false, false);
        }
    }

    /** Where output goes for now. Scala keeps the stream that it saw first, so that one must not be replaced. */
    static class Output extends FilterOutputStream {
        private ByteArrayOutputStream taken;

        Output() {
            super(OutputStream.nullOutputStream());
        }

        @Override
        public void write(byte[] data, int offset, int length) throws java.io.IOException {
            if (ended.get() == null || Thread.currentThread() != tool) {
                out.write(data, offset, length);
            }
        }

        void begin() {
            out = taken = new ByteArrayOutputStream();
        }
    }

    static final AtomicReference<Integer> ended = new AtomicReference<>();
    static volatile Thread tool;
    static final Queue<Runnable> hooks = new ConcurrentLinkedQueue<>();
    static final Output printed = new Output();
    static final Output complaints = new Output();

    public static void main(String[] ignored) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        replace("setExitProcedure", arguments -> exit((Integer) arguments[0]));
        replace("setHaltProcedure", arguments -> exit((Integer) arguments[0]));
        replace("setShutdownHookAdder", arguments -> hooks.add((Runnable) arguments[1]));
        System.setOut(new PrintStream(printed, true));
        System.setErr(new PrintStream(complaints, true));
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (EOFException end) {
                System.exit(0);
                return;
            }
            String[] command = new String[count];
            for (int i = 0; i < count; i++) {
                command[i] = new String(read(requests), StandardCharsets.UTF_8);
            }
            int status = run(command, read(requests));
            answers.writeInt(status);
            write(answers, printed.taken.toByteArray());
            write(answers, complaints.taken.toByteArray());
            answers.flush();
        }
    }

    /** What Kafka's class Exit does instead of ending the JVM. Releases have it in different packages. */
    static void replace(String setter, Consumer<Object[]> procedure) throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException older) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        for (Method method : exit.getMethods()) {
            if (method.getName().equals(setter)) {
                Class<?> kind = method.getParameterTypes()[0];
                method.invoke(null, Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, (self, called, arguments) -> {
                    procedure.accept(arguments);
                    return null;
                }));
            }
        }
    }

    /** Some tools take the exception that ends them for a failure of their own: nobody hears what they say of it. */
    static void exit(int status) {
        ended.compareAndSet(null, status);
        throw new Exited();
    }

    static int run(String[] command, byte[] input) {
        ended.set(null);
        hooks.clear();
        System.setIn(new ByteArrayInputStream(input));
        printed.begin();
        complaints.begin();
        String[] arguments = new String[command.length - 1];
        System.arraycopy(command, 1, arguments, 0, arguments.length);
        tool = new Thread(() -> {
            try {
                Class.forName(command[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (InvocationTargetException failed) {
                fail(failed.getCause());
            } catch (ReflectiveOperationException unknown) {
                fail(unknown);
            }
        });
        finish(tool);
        for (Runnable hook : hooks) {
            finish(new Thread(hook));
        }
        System.out.flush();
        System.err.flush();
        return ended.get() == null ? 0 : ended.get();
    }

    static void finish(Thread thread) {
        thread.start();
        try {
            thread.join();
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** As the JVM ends for an exception that nobody catches. */
    static void fail(Throwable cause) {
        if (ended.get() == null) {
            System.err.print("Exception in thread \"main\" ");
            cause.printStackTrace(System.err);
            ended.set(1);
        }
    }

    static byte[] read(DataInputStream in) throws java.io.IOException {
        byte[] data = new byte[in.readInt()];
        in.readFully(data);
        return data;
    }

    static void write(DataOutputStream out, byte[] data) throws java.io.IOException {
        out.writeInt(data.length);
        out.write(data);
    }
}
