"""JSON, YAML and protobuf as text and bytes."""
