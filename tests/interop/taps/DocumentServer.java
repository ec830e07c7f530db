import static java.nio.charset.StandardCharsets.UTF_8;

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import de.bwaldvogel.mongo.bson.BinData;
import de.bwaldvogel.mongo.bson.Document;
import io.netty.channel.Channel;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.crypto.Mac;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;
import javax.crypto.spec.SecretKeySpec;

/**
 * MongoDB's protocol in memory, with an oplog, and one user whom taps ask to log in by SCRAM-SHA-1 and for his roles.
 * Arguments: a port, a user, his password.
 */
public class DocumentServer extends MemoryBackend {
    private static final byte[] SALT = "salt of the test".getBytes(UTF_8);
    private static final int ROUNDS = 4096;

    private final String user;
    private final byte[] salted;
    private final Map<Channel, String> begun = new ConcurrentHashMap<>();

    DocumentServer(String user, String password) throws Exception {
        this.user = user;
        byte[] digest = MessageDigest.getInstance("MD5").digest((user + ":mongo:" + password).getBytes(UTF_8));
        PBEKeySpec spec = new PBEKeySpec(HexFormat.of().formatHex(digest).toCharArray(), SALT, ROUNDS, 160);
        salted = SecretKeyFactory.getInstance("PBKDF2WithHmacSHA1").generateSecret(spec).getEncoded();
    }

    @Override
    public Document handleCommand(Channel channel, String database, String command, Document query) {
        return switch (command) {
            case "saslStart" -> said(begin(channel, new String(payload(query), UTF_8)));
            case "saslContinue" -> said(signature(begun.get(channel), new String(payload(query), UTF_8)));
            case "usersInfo" -> users();
            case "hello", "isMaster", "ismaster" -> greeting(super.handleCommand(channel, database, command, query));
            default -> super.handleCommand(channel, database, command, query);
        };
    }

    /** As a MongoDB 5 says it: drivers of today refuse older ones. */
    private static Document greeting(Document answer) {
        return answer.append("maxWireVersion", Integer.valueOf(13)).append("logicalSessionTimeoutMinutes", Integer.valueOf(30));
    }

    private Document users() {
        Document role = new Document("role", "root").append("db", "admin");
        Document one = new Document("user", user).append("db", "admin").append("roles", List.of(role));
        return new Document("users", List.of(one)).append("ok", Double.valueOf(1));
    }

    private String begin(Channel channel, String text) {
        String client = text.substring(3);
        String nonce = client.substring(client.indexOf(",r=") + 3) + "server";
        String server = "r=" + nonce + ",s=" + Base64.getEncoder().encodeToString(SALT) + ",i=" + ROUNDS;
        begun.put(channel, client + "," + server);
        return server;
    }

    private String signature(String before, String text) {
        String all = before + "," + text.substring(0, text.lastIndexOf(",p="));
        byte[] client = hmac(salted, "Client Key");
        byte[] stored = sha1(client);
        byte[] proof = hmac(stored, all);
        for (int at = 0; at < proof.length; at++) {
            proof[at] ^= client[at];
        }
        String expected = Base64.getEncoder().encodeToString(proof);
        if (!text.endsWith(",p=" + expected)) {
            throw new IllegalArgumentException("Authentication failed.");
        }
        return "v=" + Base64.getEncoder().encodeToString(hmac(hmac(salted, "Server Key"), all));
    }

    private static Document said(String text) {
        boolean ends = text.startsWith("v=");
        Document answer = new Document("conversationId", Integer.valueOf(1)).append("done", Boolean.valueOf(ends));
        return answer.append("payload", new BinData(text.getBytes(UTF_8))).append("ok", Double.valueOf(1));
    }

    private static byte[] payload(Document query) {
        Object value = query.get("payload");
        return value instanceof byte[] bytes ? bytes : ((BinData) value).getData();
    }

    private static byte[] hmac(byte[] key, String text) {
        try {
            Mac mac = Mac.getInstance("HmacSHA1");
            mac.init(new SecretKeySpec(key, "HmacSHA1"));
            return mac.doFinal(text.getBytes(UTF_8));
        } catch (java.security.GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    private static byte[] sha1(byte[] bytes) {
        try {
            return MessageDigest.getInstance("SHA-1").digest(bytes);
        } catch (java.security.GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        MongoServer server = new MongoServer(new DocumentServer(arguments[1], arguments[2]));
        server.enableOplog();
        server.bind("127.0.0.1", Integer.parseInt(arguments[0]));
        Thread.currentThread().join();
    }
}
