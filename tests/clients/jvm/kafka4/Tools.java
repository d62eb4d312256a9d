// Runs command-line tools of Apache Kafka one after another in this JVM, which saves the start of one for each.
// Standard input: for each command a line of JSON, its class, arguments and standard input; answer: a line of JSON, the
// exit code and all it wrote.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    record Command(String tool, String[] arguments, String given) {}

    static class Ended extends Throwable {}

    static Integer code;

    /** Some tools catch what is thrown here and exit again: the first time counts. */
    static void end(int with) {
        if (code == null) code = with;
        Tools.<RuntimeException>raise(new Ended());
    }

    @SuppressWarnings("unchecked")
    static <E extends Throwable> void raise(Throwable error) throws E {
        throw (E) error;
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((with, message) -> end(with));
        Exit.setHaltProcedure((with, message) -> end(with));
        Exit.setShutdownHookAdder((name, hook) -> { });
        var json = new ObjectMapper();
        var commands = new Scanner(System.in);
        var answers = System.out;
        while (commands.hasNextLine()) {
            var written = new ByteArrayOutputStream();
            run(json.readValue(commands.nextLine(), Command.class), written);
            answers.println(json.writeValueAsString(Map.of("code", code, "output", written.toString())));
        }
        Exit.resetExitProcedure();
        Exit.exit(0);  // some tools leave threads behind
    }

    static void run(Command command, ByteArrayOutputStream written) throws Exception {
        code = null;
        var stream = new PrintStream(written, true);
        System.setOut(stream);
        System.setErr(stream);
        System.setIn(new ByteArrayInputStream(command.given().getBytes()));
        try {
            var main = Class.forName(command.tool()).getMethod("main", String[].class);
            main.setAccessible(true);
            main.invoke(null, (Object) command.arguments());
            if (code == null) code = 0;
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (code == null) error.getCause().printStackTrace(stream);
            if (code == null) code = 1;
        }
    }
}
