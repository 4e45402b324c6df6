"""What a transformer is made of. Each file turns one part of a block into weights and into a list of Ops."""
