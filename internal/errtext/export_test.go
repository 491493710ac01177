package errtext

// Rows are the rows of the table, each with its example.
func Rows() map[string]string {
	all := map[string]string{}
	for _, p := range table {
		all[p.Name] = p.example
	}
	return all
}
