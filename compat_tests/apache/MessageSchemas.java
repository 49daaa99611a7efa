import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

/**
 * Prints the schemas that kafka-clients has of messages as JSON: a line for each message of the arguments that it has.
 *
 * The names and nesting of structs, and the defaults of fields, are not in the schemas. They come from the classes that
 * Kafka generates beside them: one field of a class for each field of a struct, with its default in a new object.
 */
public class MessageSchemas {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Class<?> message;
            try {
                message = Class.forName("org.apache.kafka.common.message." + name);
            } catch (ClassNotFoundException dropped) {
                continue;
            }
            Schema[] schemas = (Schema[]) message.getField("SCHEMAS").get(null);
            StringJoiner versions = new StringJoiner(",", "{", "}");
            for (int version = 0; version < schemas.length; version++) {
                if (schemas[version] != null) {
                    versions.add("\"" + version + "\":" + struct(schemas[version], message));
                }
            }
            Object empty = empty(message);
            int key = empty instanceof ApiMessage ? ((ApiMessage) empty).apiKey() : -1;
            System.out.println("{\"name\":\"" + name + "\",\"key\":" + key + ",\"versions\":" + versions + "}");
        }
    }

    private static String struct(Schema schema, Class<?> type) throws Exception {
        boolean isFlexible = false;
        List<String> fields = new ArrayList<>();
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields) {
                isFlexible = true;
                Field member = TaggedFields.class.getDeclaredField("fields"); // no method of 3.9 tells of them
                member.setAccessible(true);
                for (var tagged : ((Map<?, ?>) member.get(bound.def.type)).entrySet()) {
                    var each = (org.apache.kafka.common.protocol.types.Field) tagged.getValue();
                    fields.add(field(each, (Integer) tagged.getKey(), type));
                }
            } else {
                fields.add(field(bound.def, null, type));
            }
        }
        return "{\"flexible\":" + isFlexible + ",\"fields\":[" + String.join(",", fields) + "]}";
    }

    private static String field(org.apache.kafka.common.protocol.types.Field field, Integer tag, Class<?> owner)
            throws Exception {
        Field member = member(owner, field.name);
        member.setAccessible(true);
        var item = field.type.arrayElementType().orElse(field.type);
        String name, inner = "null";
        if (item instanceof Schema) {
            Class<?> type = itemType(member);
            name = type.getSimpleName();
            inner = struct((Schema) item, type);
        } else {
            name = item.toString().replaceAll("COMPACT_|NULLABLE_", "").toLowerCase(Locale.ROOT);
        }
        return "{\"name\":\"" + field.name + "\",\"type\":\"" + (field.type.isArray() ? "[]" : "") + name
            + "\",\"nullable\":" + field.type.isNullable() + ",\"tag\":" + tag
            + ",\"default\":" + initial(member.get(empty(owner))) + ",\"struct\":" + inner + "}";
    }

    /** The field of a generated class that a field of its schema is made of. */
    private static Field member(Class<?> owner, String name) throws NoSuchFieldException {
        for (Field member : owner.getDeclaredFields()) {
            if (snakeCase(member.getName()).equals(name)) {
                return member;
            }
        }
        throw new NoSuchFieldException(owner + " " + name);
    }

    /** As MessageGenerator.toSnakeCase. */
    private static String snakeCase(String name) {
        StringBuilder built = new StringBuilder();
        boolean wasCapital = true;
        for (char letter : name.toCharArray()) {
            boolean isCapital = Character.isUpperCase(letter);
            if (isCapital && !wasCapital) {
                built.append('_');
            }
            built.append(Character.toLowerCase(letter));
            wasCapital = isCapital;
        }
        return built.toString();
    }

    /** The struct itself, or that of the elements of a list or of one of Kafka's own collections. */
    private static Class<?> itemType(Field member) {
        Type type = member.getGenericType();
        if (!(type instanceof ParameterizedType) && member.getType().getSimpleName().endsWith("Collection")) {
            type = member.getType().getGenericSuperclass();
        }
        return (Class<?>) (type instanceof ParameterizedType ? ((ParameterizedType) type).getActualTypeArguments()[0] : type);
    }

    private static Object empty(Class<?> type) throws Exception {
        Constructor<?> constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        return constructor.newInstance();
    }

    private static String initial(Object value) {
        if (value == null || value instanceof Boolean || value instanceof Number) {
            return String.valueOf(value);
        }
        if (value instanceof Iterable) {
            return "[]";
        }
        if (value instanceof String) {
            return "\"" + value + "\"";
        }
        if (value instanceof byte[] || value instanceof java.nio.ByteBuffer) {
            return "\"\"";
        }
        return value.equals(Uuid.ZERO_UUID) ? "\"zero uuid\"" : "\"zero struct\"";
    }
}
