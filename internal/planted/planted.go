// Package planted switches on faults that sluice stress must find. A build with the tag planted has the fault
// that SLUICE_PLANTED names. Any other build has none.
package planted
