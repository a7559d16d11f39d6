package diskraft;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The process that starts and ends the daemons, see cluster_server.py. Both sides write lines of JSON. */
final class ClusterServer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static ClusterServer running;

    private final BufferedReader answers;
    private final Writer requests;

    private ClusterServer() throws IOException {
        Process process = new ProcessBuilder(List.of(System.getProperty("diskraft.cluster.server").split("\n")))
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        answers = process.inputReader();
        requests = process.outputWriter();
    }

    /** Returns what the server answers. Throws IllegalStateException with the reason if it cannot do what was asked. */
    static synchronized JsonNode ask(String what, Map<String, ?> details) {
        try {
            if (running == null) {
                running = new ClusterServer();
            }
            return running.exchange(what, details);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private JsonNode exchange(String what, Map<String, ?> details) throws IOException {
        Map<String, Object> request = new HashMap<>(details);
        request.put("do", what);
        requests.write(JSON.writeValueAsString(request) + "\n");
        requests.flush();
        String line = answers.readLine();
        if (line == null) {
            throw new IOException("the server of clusters has ended");
        }
        JsonNode answer = JSON.readTree(line);
        if (answer.has("error")) {
            throw new IllegalStateException(answer.get("error").asText());
        }
        return answer;
    }
}
