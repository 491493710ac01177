package plan

// Call is the tokens of one request.
type Call struct{ Input, MaxTokens, Output int }
