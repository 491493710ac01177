package pool

// Parse reads a checkpoint's file.
var Parse = parse
