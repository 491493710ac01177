package config

// Fields returns the names of all fields.
func Fields() []string { return fields() }
