"""Work that comes back: which slots a schedule has, and what becomes of each."""
