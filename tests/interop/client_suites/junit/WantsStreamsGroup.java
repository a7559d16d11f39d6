package diskraft;

import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Skips those runs of a test of Kafka Streams whose parameters ask for the group protocol of KIP-1071. */
public final class WantsStreamsGroup implements ExecutionCondition {
    private static final Pattern IN_NAME = Pattern.compile(
            "(?i)groupProtocol\\w*=\"?streams|(streams\\w*ProtocolEnabled|useNewProtocol)=true|^STREAMS protocol");

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        return IN_NAME.matcher(context.getDisplayName()).find()
                ? ConditionEvaluationResult.disabled("Diskraft has no streams groups")
                : ConditionEvaluationResult.enabled("the test asks for no streams group");
    }
}
