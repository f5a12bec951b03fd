import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.avro.ipc.netty.NettyServer;
import org.apache.avro.ipc.specific.SpecificResponder;
import org.apache.flume.Event;
import org.apache.flume.api.RpcClient;
import org.apache.flume.api.RpcClientFactory;
import org.apache.flume.event.EventBuilder;
import org.apache.flume.source.avro.AvroFlumeEvent;
import org.apache.flume.source.avro.AvroSourceProtocol;
import org.apache.flume.source.avro.Status;

/** Flume's own two ends of Avro: `send PORT N` with its client, `listen PORT` with its protocol's server. */
public final class Talk {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        if (arguments[0].equals("send")) {
            send(port, Integer.parseInt(arguments[2]));
        } else {
            listen(port);
        }
    }

    private static void send(int port, int count) throws Exception {
        RpcClient client = RpcClientFactory.getDefaultInstance("127.0.0.1", port, 50);
        client.append(EventBuilder.withBody("alone", StandardCharsets.UTF_8, Map.of("who", "flume")));
        List<Event> batch = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            batch.add(EventBuilder.withBody("event " + number, StandardCharsets.UTF_8, Map.of("n", "" + number)));
        }
        client.appendBatch(batch);
        client.close();
        System.out.println("sent");
    }

    private static void listen(int port) throws Exception {
        AvroSourceProtocol printing = new AvroSourceProtocol() {
            @Override
            public Status append(AvroFlumeEvent event) {
                return appendBatch(List.of(event));
            }

            @Override
            public synchronized Status appendBatch(List<AvroFlumeEvent> events) {
                for (AvroFlumeEvent event : events) {
                    System.out.println(StandardCharsets.UTF_8.decode(event.getBody()) + " " + event.getHeaders().size());
                }
                System.out.flush();
                return Status.OK;
            }
        };
        var server = new NettyServer(
                new SpecificResponder(AvroSourceProtocol.class, printing), new InetSocketAddress("127.0.0.1", port));
        System.out.println("listening");
        server.join();
    }
}
