// Iceberg's own REST adapter, which its tests are made with, in front of its JDBC catalog: PORT, FOLDER.
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

public class ReferenceCatalog {
  public static void main(String[] words) throws Exception {
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new org.apache.hadoop.conf.Configuration());
    catalog.initialize("lake", Map.of(
        "uri", "jdbc:sqlite:" + words[1] + "/catalog.db",
        "warehouse", words[1] + "/warehouse",
        "clients", "1",
        "jdbc.schema-version", "V1"));
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
