"""Two models traced as one function, and every layer compared as it is called."""
