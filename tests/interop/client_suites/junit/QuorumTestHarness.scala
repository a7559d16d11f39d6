package kafka.server

import diskraft.DiskraftCluster
import java.util.{Map, Properties}
import java.util.stream.Stream
import kafka.utils.{Logging, TestInfoUtils}
import org.apache.kafka.clients.consumer.GroupProtocol
import org.apache.kafka.common.security.auth.SecurityProtocol
import org.apache.kafka.common.test.api.ClusterConfig
import org.apache.kafka.common.utils.Time
import org.apache.kafka.metadata.storage.Formatter
import org.apache.kafka.server.common.{Feature, MetadataVersion}
import org.junit.jupiter.api.{AfterEach, BeforeEach, TestInfo}
import org.junit.jupiter.params.provider.Arguments
import scala.collection.Seq
import scala.jdk.CollectionConverters._

/**
 * Gives the tests of Apache Kafka's core a cluster of Diskraft. All of them extend this class, which they find before Apache
 * Kafka's own, because it comes first on the class path.
 */
abstract class QuorumTestHarness extends Logging {
  protected val controllerListenerSecurityProtocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
  private var testInfo: TestInfo = _
  private var cluster: DiskraftCluster = _

  protected def kraftControllerConfigs(testInfo: TestInfo): Seq[Properties] = Seq(new Properties)

  protected def extraControllerSecurityProtocols(): Seq[SecurityProtocol] = Seq.empty

  protected def metadataVersion: MetadataVersion = MetadataVersion.latestProduction

  def addFormatterSettings(formatter: Formatter): Unit = {}

  def maybeGroupProtocolSpecified(): Option[GroupProtocol] = TestInfoUtils.maybeGroupProtocolSpecified(testInfo)

  def groupProtocolFromTestParameters(): GroupProtocol = maybeGroupProtocolSpecified().get

  def controllerServer: ControllerServer = cluster.controllerServer

  def controllerServers: Seq[ControllerServer] = Seq(controllerServer)

  @BeforeEach
  def setUp(testInfo: TestInfo): Unit = {
    this.testInfo = testInfo
    val properties = kraftControllerConfigs(testInfo).head.asScala.toMap
    val transactions: java.lang.Short = if (TestInfoUtils.isTransactionV2Enabled(testInfo)) 2.toShort else 1.toShort
    cluster = new DiskraftCluster(ClusterConfig.defaultBuilder()
      .setBrokers(0)
      .setMetadataVersion(metadataVersion)
      .setFeatures(Map.of(Feature.TRANSACTION_VERSION, transactions))
      .setServerProperties((Predef.Map("offsets.topic.replication.factor" -> "1",
        "transaction.state.log.replication.factor" -> "1") ++ properties).asJava)
      .build(), false)
    cluster.prepare()
  }

  def createBroker(config: KafkaConfig, time: Time = Time.SYSTEM, startup: Boolean = true,
      threadNamePrefix: Option[String] = None): KafkaBroker = {
    val broker = cluster.addBroker(config)
    if (startup) broker.startup()
    broker
  }

  def shutdownKRaftController(): Unit = controllerServer.shutdown()

  @AfterEach
  def tearDown(): Unit = if (cluster != null) cluster.delete()
}

object QuorumTestHarness {
  def getTestGroupProtocolParametersAll: Stream[Arguments] = protocols("classic", "consumer")

  def getTestGroupProtocolParametersClassicGroupProtocolOnly: Stream[Arguments] = protocols("classic")

  def getTestGroupProtocolParametersConsumerGroupProtocolOnly: Stream[Arguments] = protocols("consumer")

  private def protocols(names: String*): Stream[Arguments] = names.map(name => Arguments.of(name)).asJava.stream
}
