package stress

// What the table's two ratios are computed by.
var (
	Jain       = jain
	Starvation = starvation
)
