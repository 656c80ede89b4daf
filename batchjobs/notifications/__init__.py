"""Who is told what has happened: events, kept with what they are about, and their deliveries."""
