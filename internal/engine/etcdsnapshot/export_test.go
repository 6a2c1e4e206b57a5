package etcdsnapshot

// AtStep sets the function that is called after each step of adding and removing a snapshot.
func AtStep(do func(string)) { step = do }
